"""The end of a search: races the finalists and the untuned default, and stores the winner's kernels in the cache.

There are two races, before and after the winner is compiled alone. Another process on the core can favour one kernel by
more than 10 % for some seconds, so a config replaces the untuned default only if it is not slower in the second race.

The finalists are compared once more after their last timed call. An answer has passed every check of
``measure.checker``: the winner compiled alone, and each other solver's best config. If a config fails, the next
fastest replaces it. If all fail, the solvers that the search left out as slow are tried, the plain reference last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from tilesmith.db.store import Database
from tilesmith.errors import CompileError, NoSolutionError
from tilesmith.measure.timing import Timing, is_tie, preferred
from tilesmith.plan.records import Plan
from tilesmith.solvers.table import counted_us
from tilesmith.toolchain.cache import Artifact, ArtifactCache
from tilesmith.tune.clock import TimeOverError
from tilesmith.tune.compiling import build
from tilesmith.tune.job import Job
from tilesmith.tune.measuring import Measurer, timed
from tilesmith.tune.space import Point
from tilesmith.tune.trial_log import TrialLog
from tilesmith.tune.units import UnitBuilder

FINALISTS = 4
NEAR = 1.15  # a solver is a finalist if its best config takes at most this many times the fastest time
ROUNDS = 31
SECOND_RACE = 1 / 3  # of the first one's time
ATTEMPTS = 16  # to find a config of a solver that passes every check


@dataclass(frozen=True)
class Outcome:
    """Points in the order of preference with their times, and by how much this race was slower than the search."""

    order: tuple[Point, ...]
    timings: dict[Point, Timing]
    drift: float


def decide(
    job: Job, measurer: Measurer, units: UnitBuilder, cache: ArtifactCache, budget_s: float,
    left_s: Callable[[], float], most: int,
) -> tuple[Outcome, Shipped]:  # fmt: skip
    """Run both races (the first takes ``budget_s`` seconds) and store the winner in the cache.

    ``left_s`` returns the seconds that are left to check the best configs of the remaining solvers; ``most`` is the
    number of finalists beside the untuned default for which there is time.

    Raises ``NoSolutionError`` if nothing works.
    """
    while True:  # until what wins can be launched; what cannot has failed, and is not met again
        outcome = play(job, measurer, units, budget_s, most)
        shipped = ship(job, measurer, units, outcome.order, cache)
        if shipped is None:
            continue
        outcome = confirm(job, measurer, outcome, budget_s * SECOND_RACE)
        if first_of_ours(job, outcome.order) != shipped.point:
            shipped = ship(job, measurer, units, outcome.order, cache)
        if shipped is not None:
            with suppress(TimeOverError):  # what is not checked by then is no answer
                certify_answers(job, measurer, units, outcome.order, left_s)
            return outcome, shipped


def fall_back(job: Job, measurer: Measurer, units: UnitBuilder, cache: ArtifactCache) -> tuple[Outcome, Shipped]:
    """The answer of a search that ran out of time in ``decide``: the fastest config that has passed every check.

    Raises ``TimeOverError`` if no such config has kernels that were compiled alone.
    """
    log = measurer.log
    for point in log.fastest(len(log.time_s)):
        if point in log.certified and point.solver in job.solvers:
            shipped = _compiled(job, point, units, cache)
            if isinstance(shipped, Shipped):
                return Outcome((point,), {}, 1.0), shipped
    raise TimeOverError


def to_certify(ready: Sequence[Point], untuned: Point, log: TrialLog) -> list[Point]:
    """Of ``ready``, the fastest first, what must pass every check early, so that ``fall_back`` has an answer.

    That is the first best config, and the untuned default if it is faster than all that have passed: a search that
    begins with a config of another machine's record must not end with it where the default is better.
    """
    passed = [log.time_s[point] for point in log.certified if point in log.time_s]
    if not passed:
        return list(ready[:1])
    return [untuned] if untuned in ready and log.time_s[untuned] < min(passed) else []


def play(job: Job, measurer: Measurer, units: UnitBuilder, budget_s: float, most: int) -> Outcome:
    """Time the finalists for ``budget_s`` seconds. Raises ``NoSolutionError`` if none works."""
    log = measurer.log
    timings: dict[Point, Timing] = {}
    while not timings:
        finalists = _loaded(job, measurer, units, choose_finalists(job, log, most))
        finalists = finalists or [last_resort(job, measurer, units)]
        before = dict(log.time_s)
        others = [point for point in job.external_points if point not in log.records or log.records[point].ok]
        finalists += [point for point in map(measurer.load_external, others) if point is not None]
        timings = measurer.race(finalists, ROUNDS, budget_s, None, compares=True)
    for point, timing in timings.items():
        log.add(point, timed(log.records[point], timing), timing.median_us * 1e-6)
    common = [point for point in timings if point in before]
    leader = min(common, key=lambda point: before[point], default=None)
    drift = log.time_s[leader] / before[leader] if leader is not None else 1.0
    return Outcome(tuple(in_order(job, timings)), timings, drift)


def confirm(job: Job, measurer: Measurer, outcome: Outcome, budget_s: float) -> Outcome:
    """Time those before the untuned default once more, for ``budget_s`` seconds.

    For a config that is slower than the default now, beyond the spread, this time counts. (If the worse race always
    counted, noise alone would cost every gain of a few percent.)
    """
    log, first, untuned = measurer.log, outcome.timings, job.untuned
    ready = [point for point in outcome.order if log.records[point].ok and str(point) in measurer.runner.loaded]
    if untuned not in ready or ready[0] == untuned:
        return outcome
    ahead = ready[: ready.index(untuned)]
    try:
        again = measurer.race([*ahead, untuned], ROUNDS, budget_s, None, compares=True)
    except TimeOverError:  # the first race counts alone
        return outcome
    timings = {point: timing for point, timing in first.items() if log.records[point].ok}
    for point in (point for point in ahead if {point, untuned} <= again.keys()):
        now, default = again[point], again[untuned]
        if now.median_us > default.median_us and not is_tie(now, default):
            timings[point] = _scaled(now, first[untuned].median_us / default.median_us)
            log.add(point, timed(log.records[point], timings[point]), timings[point].median_us * 1e-6)
    return Outcome(tuple(in_order(job, timings)), timings, outcome.drift)


def _scaled(timing: Timing, factor: float) -> Timing:
    return replace(
        timing, median_us=timing.median_us * factor, spread_us=timing.spread_us * factor, low_us=timing.low_us * factor
    )


def choose_finalists(job: Job, log: TrialLog, most: int = FINALISTS) -> list[Point]:
    """The fastest few, every solver that comes near, and the untuned default; ``most`` beside it if below FINALISTS."""
    found = log.fastest(FINALISTS)
    if found:
        near = NEAR * log.time_s[found[0]]
        found += [point for point in log.fastest_of(job.solvers).values() if log.time_s[point] <= near]
    if most < FINALISTS:
        found = found[:most]
    if job.untuned not in log.records or log.records[job.untuned].ok:
        found.append(job.untuned)
    return list(dict.fromkeys(found))


def certify_answers(
    job: Job, measurer: Measurer, units: UnitBuilder, order: Sequence[Point], left_s: Callable[[], float]
) -> None:
    """Check each solver's best as what may be launched, where the winner cannot be; else its next.

    The fastest solver comes first. Those for which no time is left are no answers.
    """
    log = measurer.log
    ranked = list(dict.fromkeys([*order, *log.fastest(len(log.time_s))]))
    for name in dict.fromkeys(point.solver for point in ranked if point.solver in job.solvers):
        for point in [point for point in ranked if point.solver == name and point in log.time_s][:ATTEMPTS]:
            if point not in log.certified and measurer.runner.certify_s > left_s():
                return
            if any(measurer.certify(loaded) for loaded in _loaded(job, measurer, units, [point])):
                break


def last_resort(job: Job, measurer: Measurer, units: UnitBuilder) -> Point:
    """The first solver that works of those that the search left out, the plain reference at last.

    Raises ``NoSolutionError`` if there is none.
    """
    defaults = [Point(solver.name, solver.default) for solver in job.solvers.values()]
    left_out = [point for point in defaults if point not in measurer.log.records]
    for point in sorted(left_out, key=lambda point: (job.candidates[point.solver].plain, job.predict(point))):
        for built in build(job, units, [point]):
            if measurer.load(built) is not None:
                return point
    raise NoSolutionError(nothing_works(measurer.log))


def in_order(job: Job, timings: dict[Point, Timing]) -> list[Point]:
    """The best first; a tie goes to the earlier solver of the table, then to its default, then to the earlier name.

    Other libraries' kernels stand behind the table, and what their calls cost counts (``counted_us``).
    """
    place = {name: number for number, name in enumerate(job.candidates)}

    def rank(point: Point) -> tuple[int, bool, str]:
        solver = job.solvers.get(point.solver)
        return place[point.solver], solver is not None and point.config != solver.default, str(point)

    ordered: list[Point] = []
    left = {point: (counted_us(point.solver, timing.median_us), timing.spread_us) for point, timing in timings.items()}
    while left:
        ordered.append(preferred(left, rank))
        del left[ordered[-1]]
    return ordered


@dataclass(frozen=True)
class Shipped:
    """The winner as it will be launched."""

    point: Point
    plan: Plan
    artifacts: tuple[Artifact, ...]


def first_of_ours(job: Job, order: Sequence[Point]) -> Point | None:
    """The best generated kernel."""
    return next((point for point in order if point.solver in job.solvers), None)


def ship(
    job: Job, measurer: Measurer, units: UnitBuilder, order: Sequence[Point], cache: ArtifactCache
) -> Shipped | None:
    """The best kernels of ours, each compiled alone, into the cache, and check what will be launched; else the next.

    None if none of them can be.
    """
    for point in (point for point in order if point.solver in job.solvers):
        shipped = _compiled(job, point, units, cache)
        if isinstance(shipped, Shipped):
            paths = [artifact.path for artifact in shipped.artifacts]
            refused = measurer.check_all(f"shipped {point}", point, shipped.plan, paths)
            if refused is None:
                measurer.log.certified.add(point)
                return shipped
            error = f"compiled alone: {refused.reason}"
        else:
            error = shipped
        measurer.log.add(point, measurer.log.records[point].failed(error), None)
    return None


def keep(job: Job, log: TrialLog, outcome: Outcome | None, database: Database) -> None:
    """Write each solver's answer: its best finalist, else its fastest on the playoff's scale, else its failure.

    What has not passed every check is no answer: a solver that has nothing else gets none.
    """
    bests = log.fastest_of(job.candidates, certified=True)
    finalists = [point for point in outcome.order if point in log.certified] if outcome else []
    for point in reversed(finalists):
        bests[point.solver] = point
    for name in job.candidates:
        best = bests.get(name)
        if best is not None and outcome is not None and best in outcome.timings:
            database.put_result(log.records[best])
        elif best is not None:
            database.put_result(log.rescaled(best, outcome.drift if outcome is not None else 1.0))
        elif name not in log.fastest_of([name]):
            failed = [record for point, record in log.records.items() if point.solver == name and not record.ok]
            for record in failed[:1]:
                database.put_result(record)


def nothing_works(log: TrialLog) -> str:
    """One line that says why each solver failed."""
    reasons = {point.solver: record.reason for point, record in log.records.items() if not record.ok}
    return "no solver works: " + "; ".join(f"{name}: {reason}" for name, reason in reasons.items())


def _loaded(job: Job, measurer: Measurer, units: UnitBuilder, points: Sequence[Point]) -> list[Point]:
    """Those that work, after loading what was unloaded or comes from an earlier search."""
    missing = [point for point in points if str(point) not in measurer.runner.loaded]
    for built in build(job, units, missing):
        known = measurer.log.time_s.get(built.point)
        if measurer.load(built) is not None and known is not None:
            measurer.log.time_s[built.point] = known
    return [point for point in points if str(point) in measurer.runner.loaded]


def _compiled(job: Job, point: Point, units: UnitBuilder, cache: ArtifactCache) -> Shipped | str:
    draft = job.draft(point)
    units.keep(draft.sources)
    artifacts = []
    for made in cache.get_or_build_many(draft.sources, job.target, job.compiler):
        if isinstance(made, CompileError):
            return str(made)
        artifacts.append(made)
    plan = job.plan(point, draft, [artifact.digest for artifact in artifacts])
    by_digest = {artifact.digest: artifact for artifact in artifacts}
    return Shipped(point, plan, tuple(by_digest[digest] for digest in plan.artifacts))
