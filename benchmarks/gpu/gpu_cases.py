"""What `make gpu-test` runs: every case is a problem, a solver, and the number of a config."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from odd_problems import odd_problems
from random_problems import drawn

from tilesmith.codegen.symbols import parse_symbol
from tilesmith.dispatch.choice import Choice
from tilesmith.dispatch.choose import choose
from tilesmith.dispatch.facts import options_of
from tilesmith.plan.records import Draft
from tilesmith.problems.driver import read_commands
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.problems.keys import parse_key
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.work import flops
from tilesmith.solvers.cuda.reference.solver import CudaReferenceSolver
from tilesmith.solvers.solver import Accepted, Config, SearchSpace, parse_config
from tilesmith.solvers.table import Candidate, candidates
from tilesmith.targets.target import CudaTarget
from tilesmith.tune.space import random_point

PLAIN = CudaReferenceSolver().name
# Solvers that take nearly everything, and how much rather another one is drawn where it takes a problem too.
COMMON, RARE = ("mma_dense", "ffma", "wgmma_gemm", "wgmma_conv"), 8
PROBLEMS = Path(__file__).parents[1] / "problems"
CONFIGS = 2  # of each solver on each odd problem: the untuned one, then random ones
SPECIAL_FLOPS = 5e7  # problems up to this size meet NaN and Inf too
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
PLANTED = 16  # one random problem of so many meets NaN and Inf in each operand alone; most meet them in both factors
LONG = 4  # one random problem of so many is run 100 times for its bits
CHOICES = {"untuned": 4, "default": 4, "random": 2}  # shares of the ways to choose a random problem's kernel


@dataclass(frozen=True)
class Case:
    """``solver`` is empty for the one that is predicted fastest, the plain reference last; ``number`` 0 is a solver's
    default config. A random case is numbered as it is drawn. ``pick``, once it is known, is the solver and the config.
    """

    part: str
    key: str
    solver: str = ""
    number: int = 0
    family: str = ""
    pick: str = ""

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
            tunable = candidate.solver.name != PLAIN
            for number in range(CONFIGS if tunable else 1):
                yield Case("kernels", signature.key(), candidate.name, number)


def gflop_of(case: Case) -> float:
    return flops(parse_key(case.key)) * 1e-9


def random_rows(seed: int, count: int, families: Sequence[str] = ()) -> list[list[Case]]:
    """``count`` random problems in rows, each of which one kernel may serve."""
    found: list[list[Case]] = []
    number = 0
    for family, row in drawn(seed, count, families):
        found.append([Case("random", signature.key(), "", number + i, family) for i, signature in enumerate(row)])
        number += len(row)
    return found


def picked_row(row: list[Case], target: CudaTarget) -> list[Case]:
    """The cases of a row with their picks: that of the first one, where it computes the others too."""
    found: list[Case] = []
    for case in row:
        shared = [replace(case, pick=found[0].pick)] if found else []
        found.append(next((each for each in shared if _exists(each, target)), None) or _picked(case, target))
    return found


def _picked(case: Case, target: CudaTarget) -> Case:
    signature, rng = parse_key(case.key), random.Random(f"{case.key} {case.number}")
    (kind,) = rng.choices(list(CHOICES), list(CHOICES.values()))
    if kind == "untuned":
        candidate, config = predicted(signature, target)
    else:
        options = accepted(signature, target)
        options = [option for option in options if option.solver.name != PLAIN] or options
        names = sorted({option.solver.name for option in options})
        (solver,) = rng.choices(names, [1 if name.startswith(COMMON) else RARE for name in names])
        candidate = rng.choice([option for option in options if option.solver.name == solver])
        config = candidate.solver.default_config(candidate.geometry, target)
        if kind == "random":
            config = _drawn(candidate.solver.search_space(candidate.geometry, target), rng) or config
    return replace(case, pick=f"{candidate.name} {config}".rstrip())


def _drawn(space: SearchSpace, rng: random.Random) -> Config | None:
    """A random config. One axis and its value are drawn first, so that each of its values is met as often."""
    if not space.axes:
        return random_point(space, rng)
    (axis,) = rng.sample(sorted(space.axes), 1)
    with_value = SearchSpace({**space.axes, axis: (rng.choice(space.axes[axis]),)}, space.allowed)
    return random_point(with_value, rng) or random_point(space, rng)


def _exists(case: Case, target: CudaTarget) -> bool:
    """Whether the picked solver computes the problem with the picked config."""
    name, _, config = case.pick.partition(" ")
    options = accepted(parse_key(case.key), target, (name,))
    return bool(options) and options[0].solver.search_space(options[0].geometry, target).contains(parse_config(config))


def draft_of(case: Case, target: CudaTarget) -> tuple[Candidate, Config, Draft] | None:
    """What a case launches; None where a solver has no other config."""
    found = chosen(case, parse_key(case.key), target)
    return None if found is None else (*found, found[0].solver.draft(found[0].geometry, found[1], target))


Kernels = frozenset[tuple[str, str]]  # templates with types; of `kinds` of problems by themselves


def kernels_of(key: str, draft: Draft) -> Kernels:
    geometry = parse_key(key).geometry
    words = kinds(geometry) if isinstance(geometry, ConvGeometry) else ""
    symbols = [parse_symbol(source.symbol) for source in draft.sources]
    return frozenset((symbol.op + words, symbol.dtype) for symbol in symbols)


def kinds(g: ConvGeometry) -> str:
    """What a template has lines of its own for."""
    width = (g.k if g.direction == "bwd" else g.c) // g.groups
    found = {
        "deep": g.filter[0] > 1, "strided": max(g.stride) > 1, "uneven groups": g.groups > 1 and width % 16 == 8,
        "many taps": width == 1 < g.groups and g.filter[1] * g.filter[2] > 128,
    }  # fmt: skip
    return "".join(f" {name}" for name, holds in found.items() if holds)


def watched_candidates(key: str, target: CudaTarget) -> list[tuple[Case, Kernels]]:
    """What the sanitizer could run of a problem: every solver that takes it, in several configs."""
    found = []
    for candidate in accepted(parse_key(key), target):
        for number in range(CONFIGS):
            case = Case("", key, candidate.name, number)
            made = draft_of(case, target)
            if made is not None:
                found.append((replace(case, pick=f"{candidate.name} {made[1]}".rstrip()), kernels_of(key, made[2])))
    return found


def sanitizer_cases(found: Iterable[tuple[Case, Kernels]]) -> Iterator[Case]:
    """The smallest problems that launch every template, under every tool; then every template of each element type.

    The problems are odd, so that all have tails.
    """
    ordered = sorted(found, key=lambda each: (gflop_of(each[0]), each[0].name))
    first = _covering(ordered, lambda kernel: kernel[0])
    second = [case for case in _covering(ordered, lambda kernel: kernel) if case not in first]
    for cases in (first, second):
        for tool in TOOLS:
            yield from (replace(case, part=tool) for case in cases)


def _covering(ordered: list[tuple[Case, Kernels]], kind: Callable[[tuple[str, str]], object]) -> list[Case]:
    seen: set[object] = set()
    cases = []
    for case, kernels in ordered:
        kinds = {kind(kernel) for kernel in kernels}
        if not kinds <= seen:
            seen |= kinds
            cases.append(case)
    return cases


def accepted(signature: Signature, target: CudaTarget, names: Collection[str] | None = None) -> list[Candidate]:
    return [c for c in candidates(signature, target, names) if isinstance(c.verdict, Accepted)]


def predicted(signature: Signature, target: CudaTarget) -> tuple[Candidate, Config]:
    """The untuned choice, the plain reference only where nothing else computes the problem."""
    options = options_of(signature, target)
    others = [o for o in options if o.accepted and o.candidate.solver.name != PLAIN]
    choice = choose(others or options, (), mode="fast")
    assert isinstance(choice, Choice)
    candidate = next(c for c in accepted(signature, target) if c.name == choice.solver)
    return candidate, parse_config(choice.config)


def chosen(case: Case, signature: Signature, target: CudaTarget) -> tuple[Candidate, Config] | None:
    """The candidate and config of a case; None where a solver has no other config."""
    if case.pick:
        name, _, words = case.pick.partition(" ")
        return accepted(signature, target, (name,))[0], parse_config(words)
    if not case.solver:
        return predicted(signature, target)
    candidate = next(c for c in accepted(signature, target) if case.solver in (c.name, c.solver.name))
    default = candidate.solver.default_config(candidate.geometry, target)
    if case.number == 0:
        return candidate, default
    space = candidate.solver.search_space(candidate.geometry, target)
    config = _drawn(space, random.Random(f"{case.key} {case.solver} {case.number}"))
    return None if config is None or config == default else (candidate, config)
