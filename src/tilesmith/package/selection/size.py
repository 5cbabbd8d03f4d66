"""A size budget: the kernels whose plans win the least time for their bytes leave first.

A plan wins the time that its problem would take without it, minus its own: without it another plan of the problem
runs, or the plain reference. Times are measured medians where records have them, else estimates; every problem counts
once. A binary leaves together with all plans that count it, because a plan alone frees some hundred bytes. The binary
with the fewest microseconds won for each byte that its leaving frees goes first, until the rest fits.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from tilesmith.dispatch.choice import Choice
from tilesmith.errors import PackageError
from tilesmith.package.build import PackedProblem
from tilesmith.package.form import HEADER_BYTES, encode, entry_bytes
from tilesmith.package.making import PackedPlan, plan_entry
from tilesmith.package.records import KernelPackage, Kind, name_of, new_entry
from tilesmith.package.selection.rules import Selection
from tilesmith.plan.serial import decode, read_head
from tilesmith.problems.keys import parse_key
from tilesmith.problems.rewrite import Signature
from tilesmith.solvers.old_names import read_config
from tilesmith.solvers.table import candidates, solvers_for
from tilesmith.targets.target import Target
from tilesmith.toolchain.cache import Artifact


@dataclass(frozen=True)
class Costs:
    """Bytes of a budget that plans and binaries take; ``fixed`` are those that neither of them causes."""

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


def fit_size(
    packed: Sequence[PackedProblem], target: Target, most: int, costs: Costs, own: Sequence[int] | None = None
) -> tuple[PackedProblem, ...]:
    """The problems with those plans alone that ``most`` bytes hold.

    Args:
        packed: What ``pack_problems`` found.
        target: What it is for.
        most: Bytes of all plans and binaries and ``costs.fixed``.
        costs: The bytes of each.
        own: How many plans each problem may have at most; the plans behind these take the place of those that leave.
            None: all of its plans.

    Returns:
        The problems in their order; one that lost all of its plans has the reason.
    """
    budget = _Budget(packed, target, most, costs, own or [len(each.plans) for each in packed])
    budget.fit()
    budget.refill()
    return tuple(budget.left(number, problem) for number, problem in enumerate(packed))


def fitting_package(
    packed: Sequence[PackedProblem], target: Target, selection: Selection,
    assemble: Callable[[Sequence[PackedProblem]], KernelPackage],
    spares: Callable[[], Sequence[PackedProblem]] | None = None,
) -> tuple[tuple[PackedProblem, ...], KernelPackage]:  # fmt: skip
    """The problems that fit into a selection's ``size``, and the package of them that ``assemble`` makes.

    ``spares`` gives the problems with further plans behind their own, of binaries that are there: such a plan takes the
    place of one whose binary leaves. It is called if something must leave. None: there are none.
    Raises ``PackageError`` if not even a package without plans is so small.
    """
    package = assemble(packed)
    if selection.size is None or len(encode(package)) <= selection.size:
        return tuple(packed), package
    wider, own = packed if spares is None else spares(), [len(each.plans) for each in packed]
    most, costs = selection.size, package_costs()
    while True:
        kept = fit_size(wider, target, most, costs, own)
        package = assemble(kept)
        beyond = len(encode(package)) - selection.size
        if beyond <= 0:
            return kept, package
        if not any(each.plans for each in kept):
            raise PackageError(
                f"{selection.place('size')}: size {selection.size} is too small: without a plan the package has "
                f"{selection.size + beyond} bytes"
            )
        # Rows of databases and the index are in no cost, so the kept ones may cost less than ``most``: what lies
        # between is free already.
        most = min(most, _cost(kept, costs)) - beyond


def _cost(packed: Sequence[PackedProblem], costs: Costs) -> int:
    """The bytes of all plans and binaries."""
    binaries = {artifact.digest: artifact for each in packed for artifact in each.artifacts}
    plans = sum(costs.plan(plan) for each in packed for plan in each.plans)
    return costs.fixed + plans + sum(map(costs.binary, binaries.values()))


class _Budget:
    def __init__(
        self, packed: Sequence[PackedProblem], target: Target, most: int, costs: Costs, own: Sequence[int]
    ) -> None:
        self._most, self._own = most, own
        self._binaries = {each.digest: costs.binary(each) for problem in packed for each in problem.artifacts}
        self._plain_us = [plain_us(each.signature, target) if each.plans else 0.0 for each in packed]
        self._every: list[list[_Plan]] = []
        for number, problem in enumerate(packed):
            plans = []
            for place, (choice, plan) in enumerate(zip(problem.choices, problem.plans, strict=True)):
                head = read_head(plan.data)  # a database may hold the problem under another spelling
                time_us = expected_us(parse_key(head.problem), choice, target)
                plans.append(_Plan(number, place, time_us, costs.plan(plan), tuple(dict.fromkeys(head.artifacts))))
            self._every.append(plans)
        self._held = [list(plans) for plans in self._every]
        self._users: dict[str, list[_Plan]] = {digest: [] for digest in self._binaries}
        for each in itertools.chain.from_iterable(self._every):
            for digest in each.digests:
                self._users[digest].append(each)
        self._bytes = costs.fixed + sum(self._binaries.values()) + sum(map(self._taken, range(len(packed))))

    def _taken(self, number: int) -> int:
        """The bytes of a problem's plans: of those that it may have."""
        return sum(plan.nbytes for plan in self._held[number][: self._own[number]])

    def fit(self) -> None:
        """Take binaries away until the rest fits."""
        scores = {digest: self._score(digest) for digest in self._users}
        while self._bytes > self._most and scores:
            digest = min(scores, key=lambda each: (scores[each], each))
            problems = set()
            for plan in tuple(self._users[digest]):
                problems.add(plan.problem)
                self._drop(plan)
            for each in [each for each in scores if not self._users[each]]:
                self._bytes -= self._binaries[each]
                del scores[each]
            changed = {each for number in problems for plan in self._held[number] for each in plan.digests}
            scores |= {each: self._score(each) for each in changed if each in scores}

    def _drop(self, plan: _Plan) -> None:
        before = self._taken(plan.problem)
        self._held[plan.problem].remove(plan)
        self._bytes += self._taken(plan.problem) - before
        for digest in plan.digests:
            self._users[digest].remove(plan)

    def _score(self, digest: str) -> float:
        """Microseconds that the plans of a binary win, for each byte that its leaving frees."""
        users = self._users[digest]
        freed = sum(plan.nbytes for plan in users if len(self._held[plan.problem]) <= self._own[plan.problem])
        return sum(map(self._won_us, users)) / (self._binaries[digest] + freed)

    def _won_us(self, plan: _Plan) -> float:
        plans = self._held[plan.problem]
        behind = (each.time_us for each in plans[plans.index(plan) + 1 :])
        return max(0.0, min(behind, default=self._plain_us[plan.problem]) - plan.time_us)

    def refill(self) -> None:
        """Give problems that lost all plans one of them back where there is room: the last binary took too many."""
        groups: dict[tuple[str, ...], list[_Plan]] = defaultdict(list)
        for plans, held in zip(self._every, self._held, strict=True):
            for plan in plans if not held else ():
                groups[plan.digests].append(plan)

        def worth(digests: tuple[str, ...]) -> float:
            plans = groups[digests]
            nbytes = sum(self._binaries[each] for each in digests) + sum(plan.nbytes for plan in plans)
            return sum(map(self._lost_us, plans)) / nbytes

        for digests in sorted(groups, key=lambda each: (-worth(each), each)):
            room = self._most - self._bytes - sum(self._binaries[each] for each in digests if not self._users[each])
            for plan in sorted(groups[digests], key=lambda each: -self._lost_us(each) / each.nbytes):
                if plan.nbytes <= room and not self._held[plan.problem]:
                    room -= plan.nbytes
                    self._held[plan.problem].append(plan)
                    for digest in plan.digests:
                        self._users[digest].append(plan)
            if any(plan in self._held[plan.problem] for plan in groups[digests]):
                self._bytes = self._most - room

    def _lost_us(self, plan: _Plan) -> float:
        return max(0.0, self._plain_us[plan.problem] - plan.time_us)

    def left(self, number: int, problem: PackedProblem) -> PackedProblem:
        """The problem with the plans that are left."""
        plans = self._held[number][: self._own[number]]
        if len(plans) == len(problem.plans):
            return problem
        digests = {digest for plan in plans for digest in plan.digests}
        reason = ""
        if not plans:
            won_us = self._lost_us(self._every[number][0])
            reason = f"left out for the size of {self._most} bytes: it wins {won_us:.3g} us"
        return replace(
            problem, choices=tuple(problem.choices[plan.place] for plan in plans),
            plans=tuple(problem.plans[plan.place] for plan in plans),
            artifacts=tuple(each for each in problem.artifacts if each.digest in digests), reason=reason,
            refused=not plans,
        )  # fmt: skip


def package_costs() -> Costs:
    """Bytes of plans and binaries in a package: a record of the index, a name, and the stored bytes. Each is
    compressed once."""

    @cache
    def plan_bytes(packed: PackedPlan) -> int:
        plan = decode(packed.data)
        return entry_bytes(plan_entry(name_of(plan.problem, plan.target), packed))

    @cache
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
