"""What `make gpu-test` runs: every case is a problem, a solver, and the number of a config."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from odd_problems import odd_problems

from tilesmith.dispatch.choice import Choice
from tilesmith.dispatch.choose import choose
from tilesmith.dispatch.facts import options_of
from tilesmith.plan.slots import arguments
from tilesmith.problems.driver import read_commands
from tilesmith.problems.keys import parse_key
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.work import flops
from tilesmith.solvers.cuda.reference.solver import CudaReferenceSolver
from tilesmith.solvers.solver import Accepted, Config, parse_config
from tilesmith.solvers.table import Candidate, candidates
from tilesmith.targets.target import CudaTarget
from tilesmith.tune.space import random_point

PROBLEMS = Path(__file__).parents[1] / "problems"
CONFIGS = 2  # of each solver on each odd problem: the untuned one, then random ones
SPECIAL_FLOPS = 5e7  # problems up to this size meet NaN and Inf too
TINY_FLOPS = 4e6  # and those up to this size the sanitizer
TOOLS = {"memcheck": 2, "racecheck": 1, "synccheck": 1}  # problems of each solver and element type


@dataclass(frozen=True)
class Case:
    """``solver`` is empty for the one that is predicted fastest, the plain reference last; ``number`` 0 is a solver's
    default config."""

    part: str
    key: str
    solver: str = ""
    number: int = 0

    @property
    def name(self) -> str:
        return f"{self.part}: {self.key} {self.solver} {self.number}"


def list_names() -> list[str]:
    """Every list of problems."""
    return sorted(path.stem for path in PROBLEMS.glob("*.txt"))


def listed(name: str) -> list[tuple[str, str, Signature]]:
    """``(command, direction, signature)`` of a list (its name, or a file), in its order, each once."""
    found = {}
    path = Path(name) if name.endswith(".txt") else PROBLEMS / f"{name}.txt"
    for line in read_commands(str(path)):
        if line.command is None:
            print(line.error, file=sys.stderr)
            continue
        command = line.text.partition("#")[0].strip()
        for direction, signature in line.command.signatures:
            found.setdefault((command, direction), (command, direction, signature))
    return list(found.values())


def list_cases(names: Iterable[str]) -> Iterator[Case]:
    """Each problem once, by the kernel that is predicted fastest."""
    seen = set()
    for name in names:
        for _, _, signature in listed(name):
            key = signature.canonical.key()
            if key not in seen:
                seen.add(key)
                yield Case(f"list {Path(name).stem}", key)


def small_problems() -> list[Signature]:
    """``odd_problems``, each once."""
    return list({signature.canonical.key(): signature.canonical for signature in odd_problems()}.values())


def kernel_cases(target: CudaTarget) -> Iterator[Case]:
    """Every solver that takes a problem, in several configs; configs change fastest."""
    for signature in small_problems():
        for candidate in accepted(signature, target):
            tunable = candidate.solver.name != CudaReferenceSolver().name
            for number in range(CONFIGS if tunable else 1):
                yield Case("kernels", signature.key(), candidate.name, number)


def gflop_of(case: Case) -> float:
    return flops(parse_key(case.key)) * 1e-9


def sanitizer_cases(target: CudaTarget) -> Iterator[Case]:
    """The smallest problems of every solver and element type; they are odd, so that all have tails."""
    found: dict[tuple[str, tuple[str, ...]], list[Signature]] = {}
    for signature in sorted(small_problems(), key=flops):
        types = tuple(slot.dtype for slot in arguments(signature)[:2])
        for candidate in accepted(signature, target):
            found.setdefault((candidate.name, types), []).append(signature)
    for tool, count in TOOLS.items():
        for (solver, _), signatures in found.items():
            tiny = [signature for signature in signatures if flops(signature) <= TINY_FLOPS] or signatures[:1]
            for signature in tiny[:: max(1, len(tiny) // count)][:count]:
                yield Case(tool, signature.key(), solver)


def accepted(signature: Signature, target: CudaTarget) -> list[Candidate]:
    return [c for c in candidates(signature, target) if isinstance(c.verdict, Accepted)]


def chosen(case: Case, signature: Signature, target: CudaTarget) -> tuple[Candidate, Config] | None:
    """The candidate and config of a case; None where a solver has no other config."""
    if not case.solver:
        options = options_of(signature, target)
        others = [o for o in options if o.accepted and o.candidate.solver.name != CudaReferenceSolver().name]
        choice = choose(others or options, (), mode="fast")
        assert isinstance(choice, Choice)
        candidate = next(c for c in accepted(signature, target) if c.name == choice.solver)
        return candidate, parse_config(choice.config)
    candidate = next(c for c in accepted(signature, target) if case.solver in (c.name, c.solver.name))
    default = candidate.solver.default_config(candidate.geometry, target)
    if case.number == 0:
        return candidate, default
    space = candidate.solver.search_space(candidate.geometry, target)
    config = random_point(space, random.Random(f"{case.key} {case.solver} {case.number}"))
    return None if config is None or config == default else (candidate, config)
