"""Problems that are packed for a target: what ``package build`` and ``package select`` share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tilesmith.cli.problem_list import read_problems
from tilesmith.cli.terminal import complain, note, progress
from tilesmith.db.layers import Layers
from tilesmith.errors import ArgumentError, PackageError
from tilesmith.package.build import PackedProblem, Rows, assemble_package, pack_problems
from tilesmith.package.records import KernelPackage
from tilesmith.package.selection.explain import used_terms
from tilesmith.package.selection.reading import Selection, read_selection
from tilesmith.package.selection.size import fitting_package
from tilesmith.package.selection.spares import with_spares
from tilesmith.package.selection.terms import mode_of
from tilesmith.problems.driver import command_or_key
from tilesmith.problems.rewrite import Signature
from tilesmith.targets.target import Target
from tilesmith.toolchain.cache import ArtifactCache


@dataclass(frozen=True)
class Wanted:
    """Problems and what they are called; ``selection`` is None where every one of them and any kernel goes in.

    ``status`` is the exit status that the reading alone asks for.
    """

    names: dict[Signature, str]
    selection: Selection | None
    status: int


@dataclass(frozen=True)
class Packed:
    """A package, and what each problem has in it; ``terms`` says which terms of the selection were used."""

    problems: tuple[PackedProblem, ...]
    package: KernelPackage
    terms: dict[str, bool]

    @property
    def left_out(self) -> int:
        """Problems that are wanted, but have no plan."""
        return sum(not each.plans and not each.refused for each in self.problems)

    @property
    def status(self) -> int:
        return 1 if self.left_out else 0


def wanted_problems(lists: Sequence[str], select: Path | None) -> Wanted:
    """The problems of lists and of a selection file. A bad line of a list is reported, and the rest is read.

    Raises ``ArgumentError`` if there is neither, ``FileFormatError`` for what cannot be read.
    """
    if not lists and select is None:
        raise ArgumentError("say what goes in: a LIST, or --select FILE")
    listings = [read_problems([each]) for each in lists]
    names = {item.signature: str(item) for listing in listings for item in listing.items}
    selection = None if select is None else read_selection(select)
    for signature in selection.signatures if selection else ():
        names.setdefault(signature, f"{command_or_key(signature)} ({mode_of(signature)})")
    if not names:
        raise ArgumentError(f"{select or ' '.join(lists)} names no problem")
    return Wanted(names, selection, max((listing.status for listing in listings), default=0))


def packed_for(
    wanted: Wanted, name: str, target: Target, layers: Layers, cache: ArtifactCache, rows: Rows, jobs: int | None,
    plans: int, counter: int = 0, date: int = 0,
) -> Packed:  # fmt: skip
    """The package of what is wanted, with a line of progress for each problem.

    Raises ``PackageError`` if no problem has a plan.
    """
    with progress(len(wanted.names), "package") as step:

        def tell(packed: PackedProblem) -> None:
            called = wanted.names[packed.signature]
            if packed.choice is None and not packed.refused:
                complain(f"{called}: {packed.reason}")
            choice = packed.choice
            step(f"{called}: {f'{choice.solver} by {choice.basis}' if choice else packed.reason or 'left out'}")

        selection = wanted.selection
        packed = pack_problems(list(wanted.names), target, layers, cache, jobs, tell, plans, selection)

    def assemble(problems: Sequence[PackedProblem]) -> KernelPackage:
        return assemble_package(name, target, problems, layers, rows, counter, date, selection)

    if not any(each.plans for each in packed):
        why = f": {packed[0].reason}" if packed[0].refused else ""
        raise PackageError(f"no problem has a plan for {target.name}: no package is written{why}")
    if selection is None:
        return Packed(packed, assemble(packed), {})
    terms = used_terms(packed, target, selection)
    kept, package = fitting_package(
        packed, target, selection, assemble, lambda: with_spares(packed, target, layers, cache, selection)
    )
    lost = sum(bool(before.plans) and not after.plans for before, after in zip(packed, kept, strict=True))
    if lost:
        note(f"tilesmith: {selection.place('size')}: {lost} of {len(kept)} problems left out for the size")
    if not any(each.plans for each in kept):
        raise PackageError(f"{selection.place('size')}: {selection.size} bytes hold no plan for {target.name}")
    return Packed(kept, package, terms)


def tell_unused(packed: Sequence[Packed]) -> None:
    """Note the terms of the selection that none of the targets used."""
    for line in dict.fromkeys(line for each in packed for line in each.terms):
        if not any(each.terms.get(line) for each in packed):
            note(f"tilesmith: {line}")
