"""A size budget: the kernels whose plans win the least time for their bytes leave first.

A plan wins the time that its problem would take without it, minus its own: without it the next plan of the problem
runs, or the plain reference. Times are measured medians where records have them, else estimates; every problem counts
once. A binary leaves together with all plans that count it, because a plan alone frees some hundred bytes. The binary
with the fewest microseconds won for each byte that its leaving frees goes first, until the rest fits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tilesmith.dispatch.choice import Choice
from tilesmith.errors import PackageError
from tilesmith.package.build import PackedProblem
from tilesmith.package.form import HEADER_BYTES, encode, entry_bytes
from tilesmith.package.making import PackedPlan, plan_entry
from tilesmith.package.records import KernelPackage, Kind, name_of, new_entry
from tilesmith.package.selection_rules import Selection
from tilesmith.plan.serial import decode, read_head
from tilesmith.problems.keys import parse_key
from tilesmith.problems.rewrite import Signature
from tilesmith.solvers.old_names import read_config
from tilesmith.solvers.table import candidates, solvers_for
from tilesmith.targets.target import Target
from tilesmith.toolchain.cache import Artifact


@dataclass(frozen=True)
class Costs:
    """What plans and binaries take of a budget, in bytes; ``fixed`` is what neither of them causes."""

    plan: Callable[[PackedPlan], int]
    binary: Callable[[Artifact], int]
    fixed: int = 0


@dataclass(frozen=True)
class _Plan:
    """A plan of a problem, both by their places; with its time and its bytes."""

    problem: int
    place: int
    time_us: float
    nbytes: int
    digests: tuple[str, ...]


def fit_size(packed: Sequence[PackedProblem], target: Target, most: int, costs: Costs) -> tuple[PackedProblem, ...]:
    """The problems with those plans alone that ``most`` bytes hold.

    Args:
        packed: What ``pack_problems`` found.
        target: What it is for.
        most: Bytes of all plans and binaries and ``costs.fixed``.
        costs: The bytes of each.

    Returns:
        The problems in their order; one that lost all of its plans has the reason.
    """
    budget = _Budget(packed, target, most, costs)
    budget.fit()
    return budget.left()


def fitting_package(
    packed: Sequence[PackedProblem], target: Target, selection: Selection,
    assemble: Callable[[Sequence[PackedProblem]], KernelPackage],
) -> tuple[tuple[PackedProblem, ...], KernelPackage]:  # fmt: skip
    """What a selection's ``size`` leaves of the problems, and the package of it that ``assemble`` makes.

    Raises ``PackageError`` if not even a package without plans is so small.
    """
    if selection.size is None:
        return tuple(packed), assemble(packed)
    most, costs = selection.size, package_costs()
    while True:
        kept = fit_size(packed, target, most, costs)
        package = assemble(kept)
        beyond = len(encode(package)) - selection.size
        if beyond <= 0:
            return kept, package
        if not any(each.plans for each in kept):
            raise PackageError(
                f"{selection.place('size')}: size {selection.size} is too small: without a plan the package has "
                f"{selection.size + beyond} bytes"
            )
        most -= beyond  # the rows of databases, and the index


class _Budget:
    def __init__(self, packed: Sequence[PackedProblem], target: Target, most: int, costs: Costs) -> None:
        self._packed, self._most = packed, most
        self._binaries = {each.digest: costs.binary(each) for problem in packed for each in problem.artifacts}
        self._plain_us = [plain_us(each.signature, target) if each.plans else 0.0 for each in packed]
        self._of_problem: dict[int, list[_Plan]] = defaultdict(list)
        self._users: dict[str, list[_Plan]] = {digest: [] for digest in self._binaries}
        self._bytes = costs.fixed + sum(self._binaries.values())
        self._lost: dict[int, float] = {}
        for number, problem in enumerate(packed):
            for place, (choice, plan) in enumerate(zip(problem.choices, problem.plans, strict=True)):
                head = read_head(plan.data)  # a database may hold the problem under another spelling
                time_us = expected_us(parse_key(head.problem), choice, target)
                digests = tuple(dict.fromkeys(head.artifacts))
                each = _Plan(number, place, time_us, costs.plan(plan), digests)
                self._bytes += each.nbytes
                self._of_problem[number].append(each)
                for digest in digests:
                    self._users[digest].append(each)

    def fit(self) -> None:
        scores = {digest: self._score(digest) for digest in self._users}
        while self._bytes > self._most and scores:
            digest = min(scores, key=lambda each: (scores[each], each))
            problems = set()
            for plan in tuple(self._users[digest]):
                problems.add(plan.problem)
                self._drop(plan)
            changed = {each for number in problems for plan in self._of_problem[number] for each in plan.digests}
            gone = [each for each in scores if not self._users[each]]
            for each in gone:
                self._bytes -= self._binaries[each]
                del scores[each]
            scores |= {each: self._score(each) for each in changed if each in scores}

    def _drop(self, plan: _Plan) -> None:
        self._of_problem[plan.problem].remove(plan)
        self._bytes -= plan.nbytes
        for digest in plan.digests:
            self._users[digest].remove(plan)
        if not self._of_problem[plan.problem]:
            self._lost[plan.problem] = max(0.0, self._plain_us[plan.problem] - plan.time_us)

    def _score(self, digest: str) -> float:
        """Microseconds that the plans of a binary win, for each byte that they take with it."""
        users = self._users[digest]
        return sum(map(self._won_us, users)) / (self._binaries[digest] + sum(plan.nbytes for plan in users))

    def _won_us(self, plan: _Plan) -> float:
        plans = self._of_problem[plan.problem]
        behind = plans[plans.index(plan) + 1 :]
        without = behind[0].time_us if behind else self._plain_us[plan.problem]
        return max(0.0, without - plan.time_us)

    def left(self) -> tuple[PackedProblem, ...]:
        return tuple(self._reduced(number, problem) for number, problem in enumerate(self._packed))

    def _reduced(self, number: int, problem: PackedProblem) -> PackedProblem:
        plans = self._of_problem[number]
        if len(plans) == len(problem.plans):
            return problem
        digests = {digest for plan in plans for digest in plan.digests}
        reason = ""
        if not plans:
            reason = f"left out for the size of {self._most} bytes: it wins {self._lost[number]:.3g} us"
        return replace(
            problem, choices=tuple(problem.choices[plan.place] for plan in plans),
            plans=tuple(problem.plans[plan.place] for plan in plans),
            artifacts=tuple(each for each in problem.artifacts if each.digest in digests), reason=reason,
            refused=not plans,
        )  # fmt: skip


def package_costs() -> Costs:
    """What plans and binaries take in a package: a record of the index, a name, and the stored bytes."""

    def plan_bytes(packed: PackedPlan) -> int:
        plan = decode(packed.data)
        return entry_bytes(plan_entry(name_of(plan.problem, plan.target), packed))

    def binary_bytes(artifact: Artifact) -> int:
        return entry_bytes(new_entry(Kind.BINARY, artifact.digest, artifact.data))

    return Costs(plan_bytes, binary_bytes, HEADER_BYTES)


def expected_us(signature: Signature, choice: Choice, target: Target) -> float:
    """The time of a choice: as it was measured on this target, else as it is estimated."""
    if choice.time_us is not None:
        return choice.time_us
    (candidate,) = candidates(signature, target, (choice.solver,))
    config = read_config(choice.solver, choice.config)
    return float(candidate.solver.predict(candidate.geometry, config, target)) * 1e6


def plain_us(signature: Signature, target: Target) -> float:
    """The estimate for the plain reference, which computes every problem."""
    (plain,) = [each for each in candidates(signature, target, (solvers_for(target)[-1].name,)) if not each.form]
    config = plain.solver.default_config(plain.geometry, target)
    return float(plain.solver.predict(plain.geometry, config, target)) * 1e6
