"""One search: ask the strategy, compile, measure in the worker, record; then a playoff among the fastest."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace

from tilesmith.db.records import TUNE, Record, Search
from tilesmith.db.store import Database
from tilesmith.db.waiting import patiently
from tilesmith.errors import InterruptedSearchError, LaunchError, OutOfTimeError, TilesmithError
from tilesmith.measure.memory import oracle_bytes, require_memory, tensor_bytes
from tilesmith.measure.timing import LEAST_ROUNDS
from tilesmith.plan.records import Plan
from tilesmith.problems.rewrite import Signature
from tilesmith.solvers.old_names import read_config
from tilesmith.solvers.table import Candidate
from tilesmith.targets.detect import usable_cores
from tilesmith.targets.names import as_target
from tilesmith.targets.target import CudaTarget, Target
from tilesmith.toolchain.build import COMPILE_S
from tilesmith.toolchain.cache import Artifact, ArtifactCache
from tilesmith.toolchain.files import scratch
from tilesmith.toolchain.plans import keep_plan
from tilesmith.tune.clock import Clock, TimeOverError
from tilesmith.tune.compiling import CompileQueue
from tilesmith.tune.job import Job, make_job
from tilesmith.tune.measuring import Measurer
from tilesmith.tune.model import Model
from tilesmith.tune.playoff import FINALISTS, ROUNDS, SECOND_RACE, Outcome, decide, fall_back, keep, to_certify
from tilesmith.tune.process import Workers
from tilesmith.tune.progress import DONE, PLAYOFF, SEARCH, Listener, Progress, silent
from tilesmith.tune.runner import Runner
from tilesmith.tune.space import Point, SolverSpace, worthwhile
from tilesmith.tune.strategies import Defaults, Evolutionary, Exhaustive, Local, Random, Strategy
from tilesmith.tune.trial_log import TrialLog
from tilesmith.tune.units import UnitBuilder

STRATEGIES: dict[str, Callable[[Sequence[SolverSpace], int], Strategy]] = {
    "model": Model, "exhaustive": Exhaustive, "random": Random, "local": Local, "evolutionary": Evolutionary,
    "defaults": Defaults,
}  # fmt: skip
BATCH = 8  # that a CPU compiles together, and that are measured together
LEAST = 5  # configs that a search on a GPU measures, if they are compiled when its time is over
AHEAD = 2  # points that are on their way for each of a GPU's compilers
SLOW_S = 5.0  # a kernel that takes a GPU's compiler longer is not worth the batch that waits for it
RESTS_SHARE = 0.2  # of a search's seconds, at most, that are kept for each race of kernels behind which a device rests
PLAYOFF_S = (0.3, 1.5)  # seconds, at least and at most
SHIP_S = 0.5  # to compile the winner alone, at least
LATE_SHARE, LATE_S = 0.2, 2.0  # how much longer than its budget a search may take: the larger of the two
EXIT_S = 0.5  # of that: to write the databases, and to end the processes
RESTART_S = 1.5  # for a worker in the place of one that was ended
EXTERNAL_SHARE, EXTERNAL_S = 0.3, 4.0  # for PyTorch, which the worker may have to load: of the budget, and at most
ANSWER_S = 0.5  # for further checks of the solvers' bests beside the winner, at least
CONVERGED, BUDGET, INTERRUPTED = "converged", "budget", "interrupted"


@dataclass(frozen=True)
class TuneResult:
    """``record`` is the winner, ``default`` the untuned choice as the playoff measured it.

    ``ranking`` has each solver's best; ``plan`` and ``artifacts`` are the best generated one's, in the cache.
    ``trials`` counts all configs known for the problem, ``new_trials`` those of this search, ``failed`` those that
    crashed, hung, computed wrong numbers or did not compile. ``ended`` is ``converged`` or ``budget``. ``stages`` says
    where the time went: seconds until the worker was ``ready``, until the ``first`` config was measured, until the
    ``playoff`` began, and until the winner was ``shipped``. ``disturbed`` counts the samples of the winner's time and
    of the untuned choice's that other processes disturbed, and that count because too few others were left.
    """

    problem: str
    target: str
    record: Record
    default: Record | None
    ranking: tuple[Record, ...]
    trials: int
    new_trials: int
    failed: int
    seconds: float
    ended: str
    plan: Plan
    artifacts: tuple[Artifact, ...]
    stages: Mapping[str, float]
    disturbed: int = 0

    @property
    def speedup(self) -> float | None:
        """Untuned time over tuned time."""
        if self.default is None or not self.default.time_us or not self.record.time_us:
            return None
        return self.default.time_us / self.record.time_us


@patiently()
def tune(
    signature: Signature, target: Target | str, *, database: Database, cache: ArtifactCache, strategy: str = "model",
    max_trials: int | None = None, max_seconds: float | None = 15.0, seed: int = 0, progress: Listener | None = None,
    among: Sequence[Candidate] | None = None, device: int = 0, external: bool | None = None,
    first: Sequence[tuple[str, str]] = (), workers: Workers | None = None, started: float | None = None,
    hard: bool = False,
) -> TuneResult:  # fmt: skip
    """Find the best config for a problem on this machine, record every trial, and keep the winner's kernels.

    Solvers that are predicted ten times slower than another (the plain reference, mostly) are left out.
    Configs that an earlier search recorded here (same solver revision, compiler and machine) are not measured again,
    but count towards ``max_trials``. ``among`` limits the search to some candidates of the table; ``device`` is the
    ordinal of the CUDA device that measures, for a target of that family. ``external`` lets PyTorch's own kernels race
    in the playoff (default: where PyTorch is loaded and TILESMITH_EXTERNAL lets them); the worker loads PyTorch then.
    ``first`` are solvers with configs to begin with, such as the best ones of a like machine; those that do not exist
    here are passed over. ``workers`` keeps the measuring process for the next search.
    ``max_seconds`` is a hard limit: the search ends within a fifth or two seconds more, the larger of the two. It
    counts from ``started`` (of ``time.monotonic``; default: now), on a device from when the measuring process is up if
    that is later. The strategy ``defaults``, which a call waits for because nothing is known, only aims at it, unless
    ``hard`` is true.
    Raises ``NoSolutionError`` if nothing fits or nothing works, ``NoCompilerError``, ``OutOfTimeError`` if the seconds
    were over before there was an answer, and ``InterruptedSearchError`` after Ctrl-C; all that was measured is kept.
    ``LaunchError`` if the problem is too large for the memory.
    """
    target = as_target(target)
    started = time.monotonic() if started is None else started
    if strategy not in STRATEGIES:
        raise TilesmithError(f"strategy {strategy!r} does not exist; known: {', '.join(STRATEGIES)}")
    for name, value in (("max_trials", max_trials), ("max_seconds", max_seconds)):
        if value is not None and not value > 0:
            raise TilesmithError(f"{name} must be above 0, got {value}")
    on_device = False
    rested: Callable[[float], float] = float
    if isinstance(target, CudaTarget):
        from tilesmith.measure.device_check import can_check_on_device
        from tilesmith.measure.device_timing import rested

        on_device = can_check_on_device(signature.canonical)
    wanted = 3 * tensor_bytes(signature) if on_device else oracle_bytes(signature) + 3 * tensor_bytes(signature)
    require_memory(wanted, "what a search checks against")
    finding = strategy == "defaults"
    budget = _Budget(max_trials, max_seconds, PLAYOFF_S[0] if finding else PLAYOFF_S[1], hard or not finding, started)
    job = make_job(signature, target, "find" if finding else TUNE, among, device, external)
    budget.external, budget.rested = bool(job.external_points), rested
    solvers = worthwhile(list(job.solvers.values()))
    search = _Search(job, STRATEGIES[strategy](solvers, seed), database, budget, progress or silent)
    budget.waits = search.streams
    search.resume()
    search.begin_with(first, {solver.name for solver in solvers})
    ended = INTERRUPTED
    outcome: Outcome | None = None
    try:
        with ExitStack() as held:
            folder = held.enter_context(scratch())
            clock = search.clock
            units = UnitBuilder(folder, target, job.compiler, search.compilers, cache, clock, search.slow_s)
            held.callback(units.close)
            runner = Runner(job.problem, target.cores, seed, folder, job.device, cache.directory, workers, clock)
            measurer = Measurer(job, held.enter_context(runner), search.log, budget.external_s, rested)
            try:
                ended = search.run(measurer, units)
            except KeyboardInterrupt:
                with suppress(KeyboardInterrupt, LaunchError, TimeOverError):  # a second one does not wait
                    measurer.secure()
                raise
            clock.ends = budget.deadline
            search.tell(PLAYOFF)
            budget.reached("playoff")
            try:
                within = budget.playoff_s, budget.answer_s, budget.finalists
                outcome, shipped = decide(job, measurer, units, cache, *within)
            except TimeOverError:
                ended = BUDGET
                outcome, shipped = fall_back(job, measurer, units, cache)
            # So that the result launches on each machine with this cache, without a compiler.
            keep_plan(cache, shipped.plan, job.candidates[shipped.point.solver].solver.revision, target)
            budget.reached("shipped")
    except TimeOverError:
        ended = BUDGET
        known = len(search.log.records)
        raise OutOfTimeError(
            f"the {max_seconds:.1f} s of the search were over before {_unreached(budget, search.log)}; {known} trials "
            f"of {job.problem} are kept, and the next search goes on from there: give it more (--seconds, max_seconds)"
        ) from None
    except KeyboardInterrupt:
        raise InterruptedSearchError(
            f"search stopped after {len(search.log.records)} trials of {job.problem}; they are kept, "
            "and the next search goes on from there"
        ) from None
    finally:
        keep(job, search.log, outcome, database)
        database.record_trials(search.log.records.values())
        database.put_search(
            Search(
                job.problem, target.name, strategy, seed, len(search.log.records), budget.spent_s, ended, job.host.date
            )
        )
    search.tell(DONE, shipped.point)
    log = search.log
    default, winner = log.records.get(job.untuned), _winner(job, outcome, shipped.point)
    timings = [outcome.timings[point] for point in {winner, job.untuned} if point in outcome.timings]
    return TuneResult(
        job.problem, target.name, log.records[winner],
        default if default is not None and default.ok else None,
        database.ranking(job.problem, target.name), len(log.records), len(log.records) - search.known, log.failures,
        budget.spent_s, ended, shipped.plan, shipped.artifacts, dict(budget.stages),
        sum(timing.disturbed for timing in timings),
    )  # fmt: skip


def _unreached(budget: _Budget, log: TrialLog) -> str:
    """Names the stage that a search did not reach in its time."""
    if "ready" not in budget.stages:
        return "the data and its float64 reference were made"
    return "its winner was compiled, checked and timed" if log.time_s else "a config was measured"


def _winner(job: Job, outcome: Outcome, shipped: Point) -> Point:
    """The first in the playoff's order that works: what is launched from here on."""
    return next(point for point in outcome.order if point == shipped or point.solver not in job.solvers)


@dataclass
class _Budget:
    """Trials and seconds; seconds include the playoff and the last compile.

    ``compile_s``, ``check_s``, ``certify_s``, ``round_s`` and ``best_s`` are what the search has met: the shortest
    compilation, the longest check of a config, the longest of one that may be chosen, the longest that a config took in
    a round of a race, the fastest kernel. ``rested`` is what a sample of so many seconds takes, with what a device
    rests behind it. With ``external`` other libraries' kernels are loaded in the playoff. No seconds count while it
    ``waits`` for a device's process to be up.
    """

    max_trials: int | None
    max_seconds: float | None
    longest_playoff_s: float
    enforced: bool = True
    started: float = field(default_factory=time.monotonic)
    trials: int = 0
    compile_s: float = 0.0
    check_s: float = 0.0
    best_s: float = 0.0
    certify_s: float = 0.0
    round_s: float = math.inf
    rested: Callable[[float], float] = float
    external: bool = False
    waits: bool = False
    stages: dict[str, float] = field(default_factory=dict)

    def begin(self, up: float) -> None:
        """The process was up at this moment."""
        self.started, self.waits = max(self.started, up), False

    def reached(self, stage: str) -> None:
        """Note when a stage of the search was reached first."""
        self.stages.setdefault(stage, round(self.spent_s, 3))

    @property
    def spent_s(self) -> float:
        return 0.0 if self.waits else time.monotonic() - self.started

    @property
    def playoff_s(self) -> float:
        longest = self.longest_playoff_s
        return longest if self.max_seconds is None else min(longest, max(PLAYOFF_S[0], 0.12 * self.max_seconds))

    def answer_s(self) -> float:
        """Seconds that are left for further checks of the solvers' bests beside the winner."""
        return (
            math.inf
            if self.max_seconds is None or not self.enforced
            else max(ANSWER_S, self.max_seconds) - self.spent_s
        )

    @property
    def finalists(self) -> int:
        """Configs that a race has time for beside the untuned default: the device rests behind each run of a long
        kernel, and a race has three runs of each at least."""
        each_s = LEAST_ROUNDS * self.rested(self.best_s)
        if self.max_seconds is None or each_s == 0.0:
            return FINALISTS
        return max(1, min(FINALISTS, int(RESTS_SHARE * self.max_seconds / each_s) - 1))

    @property
    def races_s(self) -> float:
        """Seconds of both races of the playoff: twice what the rounds of the search let one expect."""
        runs, share = LEAST_ROUNDS * (self.finalists + 1), RESTS_SHARE * (self.max_seconds or math.inf)
        least = max(runs * self.best_s, min(runs * self.rested(self.best_s), share))
        whole = min(self.playoff_s, 2 * ROUNDS * (FINALISTS + 1) * self.round_s)
        return max(whole, least) + max(whole * SECOND_RACE, least)

    @property
    def ending_s(self) -> float:
        """Seconds of both races of the playoff, of the compilation between them, and of PyTorch if its kernels compete.

        The winner is checked and certified once more, and some finalists may have to be loaded again.
        """
        external_s = min(EXTERNAL_S, EXTERNAL_SHARE * (self.max_seconds or math.inf)) if self.external else 0.0
        return self.races_s + max(SHIP_S, self.compile_s) + 3 * self.check_s + external_s + self.certify_s

    @property
    def deadline(self) -> float:
        """When everything has to be over, as a moment of ``time.monotonic``."""
        if self.max_seconds is None or not self.enforced or self.waits:
            return math.inf
        return self.started + self.max_seconds + max(LATE_SHARE * self.max_seconds, LATE_S) - EXIT_S

    @property
    def cut(self) -> float:
        """When what the search waits for is ended, so that there is still time for its ending: another worker, if
        there is something that it can load, and the playoff."""
        return self.deadline - self.ending_s - (RESTART_S if self.best_s else 0.0)

    def external_s(self) -> float:
        """Seconds that other libraries' kernels may take now, and the playoff still comes to its end."""
        after = self.races_s + max(SHIP_S, self.compile_s) + (FINALISTS + 1) * self.check_s + self.certify_s + RESTART_S
        return self.deadline - time.monotonic() - after

    @property
    def left_s(self) -> float:
        """Seconds until the playoff must begin."""
        return math.inf if self.max_seconds is None else self.max_seconds - self.ending_s - self.spent_s

    @property
    def out_of_time(self) -> bool:
        return self.left_s < 0

    def grant(self, count: int) -> int:
        """How many of ``count`` trials are left."""
        return count if self.max_trials is None else max(0, min(count, self.max_trials - self.trials))


class _Search:
    """The loop of batches."""

    def __init__(self, job: Job, strategy: Strategy, database: Database, budget: _Budget, listener: Listener) -> None:
        self.job, self.strategy, self.database = job, strategy, database
        self.budget, self.listener = budget, listener
        self.log = TrialLog()
        self.clock = Clock()
        self.known = 0
        self.awaits_untuned = False  # it is compiled, or waits for the worker
        self.first: list[Point] = []
        # A GPU's kernels leave the host's cores to the compilers, but for the one that queues them.
        self.streams = job.device >= 0
        spare = usable_cores() - (1 if self.streams else job.target.cores)
        # Compilers beside a measurement would disturb it, unless they have cores of their own.
        self.overlap = self.streams or spare > 0
        self.compilers = max(1, spare) if self.overlap else usable_cores()
        self.slow_s = SLOW_S if self.streams else COMPILE_S

    def resume(self) -> None:
        """Take over the trials of earlier searches that say something about today's kernels on this machine."""
        job = self.job
        for record in self.database.trials(job.problem, job.target.name):
            solver = job.solvers.get(record.solver)
            here = (record.compiler, record.host) == (job.compiler.identity, job.host.name)
            if solver is None or not here or record.revision != job.candidates[solver.name].solver.revision:
                continue
            try:
                point = Point(solver.name, read_config(solver.name, record.config))
            except ValueError:
                continue
            if solver.space.contains(point.config):
                marked = replace(record, origin=job.origin_of(point, record.origin))
                self.log.add(point, marked, None if record.time_us is None else record.time_us * 1e-6)
                self.strategy.tell(point, self.log.time_s.get(point))
        self.known = self.budget.trials = len(self.log.records)

    def begin_with(self, first: Sequence[tuple[str, str]], solvers: set[str]) -> None:
        """Put points before all that the strategy asks for."""
        for solver, config in first:
            try:
                point = Point(solver, read_config(solver, config))
            except ValueError:
                continue
            if solver in solvers and self.job.solvers[solver].space.contains(point.config):
                self.first.append(point)
        self.first = [point for point in dict.fromkeys(self.first) if point not in self.log.records]
        self.strategy.expect(self.first)

    def run(self, measurer: Measurer, units: UnitBuilder) -> str:
        """Measure until the strategy has nothing left or the budget is spent; says which.

        Raises ``TimeOverError`` if nothing was measured by then.
        """
        self.clock.ends = self.budget.cut
        queue = CompileQueue(self.job, units, lambda: self._compile_s(units.patience_s))
        cut = False
        try:
            self._measure_all(queue, measurer, units)
        except TimeOverError:
            if not self.log.time_s:
                raise
            cut = True
        running = queue.drop()
        if not self.streams:
            wait(running)  # beside compilers nothing can be timed on a CPU; theirs is the search's time, which is over
        cut = cut or units.has_cut or self.budget.out_of_time or self.budget.grant(1) == 0
        return BUDGET if cut else CONVERGED

    def _measure_all(self, queue: CompileQueue, measurer: Measurer, units: UnitBuilder) -> None:
        """The loop: what is compiled is measured, and the strategy learns of it."""
        # While the defaults are compiled, the strategy finds what comes next.
        queue.submit(
            self._next(len(self.strategy.solvers) if self.streams else BATCH, first=not self.log.records),
            lambda: self._first_s(units.patience_s),
        )
        if self.streams:
            self._refill(queue)  # and more, while the worker starts and makes the oracle
            self.budget.begin(measurer.runner.await_up())
            self.clock.ends = self.budget.cut
        measurer.runner.await_ready()
        self.budget.reached("ready")
        while True:
            if self.streams:
                self._refill(queue)
            elif not len(queue):
                queue.submit(self._next(BATCH))
            if not len(queue):
                break
            # The first answer is waited for, and the untuned choice, than which no answer may be slower; then what is
            # not compiled when the time is over is not looked at.
            answered = self.log.time_s and not queue.has(self.job.untuned)
            patience = max(0.0, self.budget.left_s if answered else self.clock.left_s())
            built = queue.take(BATCH if self.streams else None, patience)
            self.awaits_untuned = queue.has(self.job.untuned) or self.job.untuned in {each.point for each in built}
            if not built and (len(queue) or self.budget.out_of_time):
                break
            if self.overlap and not self.streams:
                queue.submit(self._next(BATCH))
            reached = measurer.measure(built, self._is_over)
            for point in reached:
                self.strategy.tell(point, self.log.time_s.get(point))
            self.database.record_trials([self.log.records[point] for point in reached])
            if self.log.time_s:
                self.budget.reached("first")
            self._learn(measurer, units)
            self.tell(SEARCH)
            if self._is_over() and self.log.time_s:
                break

    def _learn(self, measurer: Measurer, units: UnitBuilder) -> None:
        """Predicts the seconds of the ending from the times met so far."""
        if not self.streams or self.known:  # a GPU's kernels are each compiled alone; an earlier search's may be gone
            self.budget.compile_s = units.least_s if math.isfinite(units.least_s) else 0.0
        self.budget.check_s = measurer.runner.check_s
        self.budget.round_s = measurer.runner.round_s or math.inf
        if self._note_best():
            # The time of the winner's last checks depends on its tensors, not on its speed: measure it on the first
            # best config.
            ready = [point for point in self.log.fastest(len(self.log.time_s)) if str(point) in measurer.runner.loaded]
            if self.budget.enforced:
                for point in to_certify(ready, self.job.untuned, self.log):
                    measurer.certify(point)
            self.budget.certify_s = measurer.runner.certify_s
        self.clock.ends = self.budget.cut

    def _note_best(self) -> bool:
        """Tell the budget how long the fastest kernel takes; whether there is one."""
        best = self.log.best()
        self.budget.best_s = self.log.time_s[best] if best is not None else 0.0
        return best is not None

    def _is_over(self) -> bool:
        """No time is left, and something was measured of what could be, the untuned choice before all."""
        self._note_best()
        if not self.budget.out_of_time or (self.awaits_untuned and self.job.untuned not in self.log.records):
            return False
        return len(self.log.records) - self.known >= (LEAST if self.streams else 1)

    def _refill(self, queue: CompileQueue) -> None:
        """Keep the compilers busy: a strategy that is asked for many at a time is asked less often."""
        room = AHEAD * self.compilers - len(queue)
        if room >= min(BATCH, self.compilers) or not len(queue):
            queue.submit(self._next(room))

    def _next(self, count: int, first: bool = False) -> list[Point]:
        """Up to ``count`` points; the first are always granted."""
        if self.budget.out_of_time and not first:
            return []
        count = self.budget.grant(count)
        batch, self.first = self.first[:count], self.first[count:]
        while len(batch) < count and (more := self.strategy.ask(count - len(batch))):
            batch += more
        self.budget.trials += len(batch)
        return batch

    def _compile_s(self, patience_s: float) -> float:
        """How long a compiler may take; what ends with the budget is never looked at."""
        return min(patience_s, max(0.0, self.budget.left_s)) if self.log.time_s else patience_s

    def _first_s(self, patience_s: float) -> float:
        """How long a compiler of a default may take: its whole time until the untuned choice is answered.

        The search waits for that answer even when its time is over.
        """
        return COMPILE_S if self.job.untuned not in self.log.records else self._compile_s(patience_s)

    def tell(self, phase: str, chosen: Point | None = None) -> None:
        best, known, time_s = chosen or self.log.best(), len(self.log.records), self.log.time_s
        untuned_s = time_s.get(self.job.untuned)
        limit = self.budget.max_trials
        self.listener(
            Progress(
                self.job.problem, phase, known, self.log.failures, self.budget.spent_s, self.budget.max_seconds,
                str(best or ""), time_s[best] * 1e6 if best else None, None if untuned_s is None else untuned_s * 1e6,
                None if limit is None else max(0, limit - known), known - self.known,
            )
        )  # fmt: skip
