"""The end of a search: the finalists and the untuned default head to head, and the winner's kernels into the cache.

There are two legs, before and after the winner is compiled alone: for some seconds a neighbour on the core can favour
one kernel by more than 10 %, and who replaces the untuned default must not be slower than it in the second one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilesmith.db.store import Database
from tilesmith.errors import CompileError, NoSolutionError
from tilesmith.measure.timing import Timing, is_tie, preferred
from tilesmith.plan.records import Plan
from tilesmith.toolchain.cache import Artifact, ArtifactCache
from tilesmith.tune.book import Book
from tilesmith.tune.clock import TimeOverError
from tilesmith.tune.compiling import build
from tilesmith.tune.job import Job
from tilesmith.tune.measuring import Measurer, timed
from tilesmith.tune.messages import Loaded
from tilesmith.tune.space import Point
from tilesmith.tune.units import UnitBuilder

FINALISTS = 4
NEAR = 1.15  # an arm whose best is within this of the fastest takes part
ROUNDS = 31
SECOND_LEG = 1 / 3  # of the first one's time


@dataclass(frozen=True)
class Outcome:
    """Points in the order of preference with their times, and by how much this race was slower than the search."""

    order: tuple[Point, ...]
    timings: dict[Point, Timing]
    drift: float


def play(job: Job, measurer: Measurer, units: UnitBuilder, budget_s: float) -> Outcome:
    """Time the finalists for ``budget_s`` seconds. Raises ``NoSolutionError`` if none works."""
    book = measurer.book
    finalists = _loaded(job, measurer, units, choose_finalists(job, book))
    before = dict(book.time_s)
    finalists += [point for point in map(measurer.load_library, job.library_points) if point is not None]
    timings = measurer.race(finalists, ROUNDS, budget_s, None) if finalists else {}
    if not timings:
        raise NoSolutionError(nothing_works(book))
    for point, timing in timings.items():
        book.add(point, timed(book.records[point], timing), timing.median_us * 1e-6)
    common = [point for point in timings if point in before]
    leader = min(common, key=lambda point: before[point], default=None)
    drift = book.time_s[leader] / before[leader] if leader is not None else 1.0
    return Outcome(tuple(in_order(job, timings)), timings, drift)


def confirm(job: Job, measurer: Measurer, outcome: Outcome, budget_s: float) -> Outcome:
    """Time those before the untuned default once more, for ``budget_s`` seconds.

    Of who is slower than it now, beyond the spread, this time counts. (Would the worse leg always count, noise alone
    would cost every gain of a few percent.)
    """
    book, first, untuned = measurer.book, outcome.timings, job.untuned
    ready = [point for point in outcome.order if book.records[point].ok and str(point) in measurer.runner.loaded]
    if untuned not in ready or ready[0] == untuned:
        return outcome
    ahead = ready[: ready.index(untuned)]
    try:
        again = measurer.race([*ahead, untuned], ROUNDS, budget_s, None)
    except TimeOverError:  # the first leg counts alone
        return outcome
    timings = {point: timing for point, timing in first.items() if book.records[point].ok}
    for point in (point for point in ahead if {point, untuned} <= again.keys()):
        now, default = again[point], again[untuned]
        if now.median_us > default.median_us and not is_tie(now, default):
            timings[point] = _scaled(now, first[untuned].median_us / default.median_us)
            book.add(point, timed(book.records[point], timings[point]), timings[point].median_us * 1e-6)
    return Outcome(tuple(in_order(job, timings)), timings, outcome.drift)


def _scaled(timing: Timing, factor: float) -> Timing:
    return replace(
        timing, median_us=timing.median_us * factor, spread_us=timing.spread_us * factor, low_us=timing.low_us * factor
    )


def choose_finalists(job: Job, book: Book) -> list[Point]:
    """The fastest few, every solver that comes near, and the untuned default."""
    found = book.fastest(FINALISTS)
    if found:
        near = NEAR * book.time_s[found[0]]
        found += [point for point in book.fastest_of(job.candidates).values() if book.time_s[point] <= near]
    if job.untuned not in book.records or book.records[job.untuned].ok:
        found.append(job.untuned)
    return list(dict.fromkeys(found))


def in_order(job: Job, timings: dict[Point, Timing]) -> list[Point]:
    """The best first; a tie goes to the earlier solver of the table, then to its default, then to the earlier name.

    PyTorch's own kernels stand behind the table.
    """
    place = {name: number for number, name in enumerate(job.everyone)}

    def rank(point: Point) -> tuple[int, bool, str]:
        arm = job.arms.get(point.arm)
        return place[point.arm], arm is not None and point.config != arm.default, str(point)

    ordered: list[Point] = []
    left = {point: (timing.median_us, timing.spread_us) for point, timing in timings.items()}
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
    return next((point for point in order if point.arm in job.candidates), None)


def ship(job: Job, measurer: Measurer, units: UnitBuilder, order: Sequence[Point], cache: ArtifactCache) -> Shipped:
    """The best kernels of ours, each compiled alone, into the cache, and check what will be launched; else the next."""
    for point in (point for point in order if point.arm in job.candidates):
        shipped = _compiled(job, point, units, cache)
        if isinstance(shipped, Shipped):
            paths = [artifact.path for artifact in shipped.artifacts]
            reply = measurer.check(f"shipped {point}", point, shipped.plan, paths)
            if isinstance(reply, Loaded):
                return shipped
            error = f"compiled alone: {reply.reason}"
        else:
            error = shipped
        measurer.book.add(point, measurer.book.records[point].failed(error), None)
    raise NoSolutionError(nothing_works(measurer.book))


def keep(job: Job, book: Book, outcome: Outcome | None, database: Database) -> None:
    """Write each solver's answer: its best finalist, else its fastest on the playoff's scale, else its failure."""
    bests = book.fastest_of(job.everyone)
    finalists = [point for point in outcome.order if point in book.time_s] if outcome else []
    for point in reversed(finalists):
        bests[point.arm] = point
    for name in job.everyone:
        best = bests.get(name)
        if best is not None and outcome is not None and best in outcome.timings:
            database.put_result(book.records[best])
        elif best is not None:
            database.put_result(book.rescaled(best, outcome.drift if outcome is not None else 1.0))
        elif failed := [record for point, record in book.records.items() if point.arm == name and not record.ok]:
            database.put_result(failed[0])


def nothing_works(book: Book) -> str:
    """One line that says why each solver failed."""
    reasons = {point.arm: record.reason for point, record in book.records.items() if not record.ok}
    return "no solver works: " + "; ".join(f"{name}: {reason}" for name, reason in reasons.items())


def _loaded(job: Job, measurer: Measurer, units: UnitBuilder, points: Sequence[Point]) -> list[Point]:
    """Those that work, after loading what was unloaded or comes from an earlier search."""
    missing = [point for point in points if str(point) not in measurer.runner.loaded]
    for built in build(job, units, missing):
        known = measurer.book.time_s.get(built.point)
        if measurer.load(built) is not None and known is not None:
            measurer.book.time_s[built.point] = known
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
