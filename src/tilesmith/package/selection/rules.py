"""The rules by which a selection lets problems into a package or a library. Pure: ``selection`` reads a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

from tilesmith.db.records import Record
from tilesmith.errors import TargetError
from tilesmith.package.selection.shape import shape_of
from tilesmith.package.selection.terms import ArchStages, Shapes, Tile, Trait, mode_of, types_of
from tilesmith.problems.keys import parse_key
from tilesmith.problems.rewrite import Signature
from tilesmith.solvers.old_names import read_config
from tilesmith.solvers.solver import Accepted, Config
from tilesmith.solvers.table import Candidate, candidates
from tilesmith.solvers.table_cpu import CPU_SOLVERS
from tilesmith.solvers.table_cuda import CUDA_SOLVERS
from tilesmith.targets.names import parse_target
from tilesmith.targets.target import CudaTarget, Target

SOLVERS = {
    "cpu": tuple(solver.name for solver in CPU_SOLVERS),
    "cuda": tuple(solver.name for solver in CUDA_SOLVERS),
}


@dataclass(frozen=True)
class Selection:
    """The problems and kernels of a package or a library.

    Args:
        path: The file that it was read from.
        signatures: The problems that the file names, before ``traits`` and ``modes`` are asked.
        traits: A problem goes in if one fits. None: any.
        modes: Of ``MODES``; a problem has one of them (``mode_of``). None: any.
        tiles: A GPU kernel with a tile goes in if one fits. None: any.
        arch_stages: A GPU kernel with a ring of stages goes in if one fits. None: any.
        solvers: Names or globs over names. A family of targets of which they name no solver is not limited by them.
        size: The most bytes of a package, or of what one target adds to a library. None: any.
        reference: Whether the plain reference may compute what no other kernel may.
        lines: The line of each key in the file.
    """

    path: Path
    signatures: tuple[Signature, ...] = field(default=(), repr=False)
    traits: tuple[Trait, ...] = ()
    modes: tuple[str, ...] = ()
    tiles: tuple[Tile, ...] = ()
    arch_stages: tuple[ArchStages, ...] = ()
    solvers: tuple[str, ...] = ()
    size: int | None = None
    reference: bool = True
    lines: Mapping[str, int] = field(default_factory=dict, repr=False, hash=False, compare=False)

    def problems(self) -> tuple[Signature, ...]:
        """The file's problems that ``traits`` and ``modes`` let in, each once, in their order."""
        return tuple(dict.fromkeys(each for each in self.signatures if not self.refuses_problem(each)))

    def decide(self, signature: Signature, solver: str, config: str, target: Target) -> str:
        """Why a kernel is out; empty if it is in.

        Args:
            signature: The problem.
            solver: A name of the solver table, such as ``wgmma_gemm@gemm``.
            config: As it is printed and stored.
            target: What it is for.
        """
        out = self.refuses_problem(signature)
        if out:
            return out
        found = candidates(signature, target, (solver,))
        if not found or not isinstance(found[0].verdict, Accepted):
            return f"{solver} does not compute this problem here"
        return self.refuses_config(found[0], config, target)

    def takes_row(self, row: Record) -> bool:
        """Whether a row of a database is of a kernel that is let in."""
        try:
            target = parse_target(row.target)
        except TargetError:  # a newer Tilesmith's
            return False
        if not self.limits_kernels(target):
            return True
        found = candidates(parse_key(row.problem), target, (row.solver,))
        if not found or not isinstance(found[0].verdict, Accepted):
            return False
        return not self.refuses_config(found[0], row.config, target)

    def refuses_problem(self, signature: Signature) -> str:
        """Why every kernel of the problem is out: its mode or its types; empty if it may be in."""
        mode = mode_of(signature)
        if self.modes and mode not in self.modes:
            return f"mode {mode} is not selected ({', '.join(self.modes)})"
        if self.traits and not any(trait.fits(signature) for trait in self.traits):
            return f"types {'/'.join(types_of(signature))} are not selected ({', '.join(map(str, self.traits))})"
        return ""

    def refuses_solver(self, candidate: Candidate, target: Target) -> str:
        """Why every config of an accepted candidate is out; empty if one may be in."""
        if candidate.plain:
            return "" if self.reference else "the plain reference is refused"
        named = limited_by(self.solvers, target.family)
        if named and not any(names_solver(candidate.name, pattern) for pattern in named):
            return f"solver {candidate.name} is not selected ({', '.join(named)})"
        return ""

    def refuses_kernel(self, candidate: Candidate, config: Config, target: Target) -> str:
        """Why this kernel of an accepted candidate is out; empty if it is in."""
        out = self.refuses_solver(candidate, target)
        if out or candidate.plain or not self.limits_shapes(target):
            return out
        assert isinstance(target, CudaTarget)
        return self.shapes.refuses(shape_of(candidate.solver, candidate.geometry, config, target), target)

    def refuses_config(self, candidate: Candidate, config: str, target: Target) -> str:
        """The same for a config as it is printed; one of another version of the solver is out."""
        try:
            return self.refuses_kernel(candidate, read_config(candidate.name, config), target)
        except (ValueError, KeyError):
            return f"{candidate.name} has no config {config!r}"

    @property
    def shapes(self) -> Shapes:
        return Shapes(self.tiles, self.arch_stages)

    def limits_kernels(self, target: Target) -> bool:
        """Whether some kernels of a problem that is in may be out."""
        return not self.reference or bool(limited_by(self.solvers, target.family)) or self.limits_shapes(target)

    def limits_shapes(self, target: Target) -> bool:
        """Whether some configs of a solver may be out."""
        return isinstance(target, CudaTarget) and bool(self.tiles or self.arch_stages)

    def place(self, key: str) -> str:
        """``FILE:LINE`` of a key."""
        return f"{self.path}:{self.lines[key]}" if key in self.lines else str(self.path)


@lru_cache(maxsize=64)
def limited_by(solvers: tuple[str, ...], family: str) -> tuple[str, ...]:
    """Those patterns that name a solver of this family of targets, in any form."""
    return tuple(
        pattern for pattern in solvers if any(fnmatchcase(name, pattern.partition("@")[0]) for name in SOLVERS[family])
    )


def names_solver(name: str, pattern: str) -> bool:
    """Whether a pattern fits a candidate's name; one without a form (``@gemm``) fits all forms."""
    return fnmatchcase(name if "@" in pattern else name.partition("@")[0], pattern)
