"""Makes a record for each point: the worker checks and times its compiled kernels.

Times of different batches are put on one scale: the fastest config so far is in every race, and every other time is
scaled by its ratio to that config's time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tilesmith.db.records import Record
from tilesmith.errors import PlanError
from tilesmith.measure.timing import LEAST_ROUNDS, Timing
from tilesmith.plan.records import Plan
from tilesmith.plan.serial import encode
from tilesmith.problems.work import flops
from tilesmith.tune.compiling import CompiledPoint
from tilesmith.tune.job import Job
from tilesmith.tune.messages import Load, Loaded, Refused
from tilesmith.tune.runner import Runner
from tilesmith.tune.space import Point
from tilesmith.tune.trial_log import TrialLog

EXTERNAL_S = 180.0  # to load another library and let it try all its kernels
KEPT = 4  # of the fastest plans stay loaded
QUICK = 1.25  # first estimates are rough: a race decides among those within this of the fastest
DROP = 1.1
ROUNDS = 7
RACE_S = 0.5  # of a race among new configs, at most, if loading them took less
CERTIFIED_RUNS = 3  # times what the first check may take


class Measurer:
    """Measures in ``runner`` and keeps what it finds in ``log``.

    ``rested`` is what a sample of so many seconds takes, with what a device rests behind it.
    """

    def __init__(
        self, job: Job, runner: Runner, log: TrialLog, external_s: Callable[[], float] | None = None,
        rested: Callable[[float], float] = float,
    ) -> None:  # fmt: skip
        self.job = job
        self.runner = runner
        self.log = log
        self.rested = rested
        self.external_s = external_s or (lambda: EXTERNAL_S)  # seconds that other libraries' kernels may take now

    def measure(self, batch: Sequence[CompiledPoint], out_of_time: Callable[[], bool]) -> list[Point]:
        """Check every config, and race the promising ones with the fastest so far. Returns the checked points.

        The race takes no longer than it took to load them: of slow ones fewer enter, or there is none, and what was
        measured when they were loaded counts.
        """
        began = time.monotonic()
        estimates: dict[Point, Timing] = {}
        reached = []
        for built in batch:
            if self.log.time_s and out_of_time():
                break
            reached.append(built.point)
            quick = self.load(built)
            if quick is not None:
                estimates[built.point] = quick
        if estimates:
            self._rank(estimates, max(RACE_S, time.monotonic() - began))
        # Each solver's best is checked in the end: what stays loaded is not compiled again.
        kept = {*self.log.fastest(KEPT), *self.log.fastest_of(self.job.candidates).values(), self.job.untuned}
        keep = set(map(str, kept))
        self.runner.unload([name for name in self.runner.loaded if name not in keep])
        return reached

    def secure(self) -> None:
        """Check the fastest config that is loaded so that it may be chosen, after an interruption."""
        self.runner.recover()
        while (best := self._leader({})) is not None and not self.certify(best):
            pass

    def load(self, built: CompiledPoint) -> Timing | None:
        """Check a config and estimate its time; None, and a failed record, when it cannot be used."""
        point, blank = built.point, self.job.blank(built.point)
        if built.draft is None:
            self.log.add(point, blank.failed(built.error), None)
            return None
        by_digest = dict(zip(built.digests, built.paths, strict=True))
        try:
            plan = self.job.plan(point, built.draft, built.digests)
        except PlanError as error:
            self.log.add(point, blank.failed(str(error)), None)
            return None
        reply = self.check(str(point), point, plan, [by_digest[digest] for digest in plan.artifacts])
        if isinstance(reply, Refused):
            self._fail(point, reply)
            return None
        record = replace(
            timed(blank, reply.quick), error=reply.error, bound=reply.bound, prepare_us=reply.prepare_us,
            workspace=plan.workspace_bytes + plan.packed_bytes,
        )  # fmt: skip
        self.log.add(point, record, reply.quick.low_us * 1e-6)
        return reply.quick

    def load_external(self, point: Point) -> Point | None:
        """Have the worker load another library's kernel; None, and a failed record, where it cannot be used.

        Returns None without a record if there is no time: loading may end the worker, and the search needs time to
        finish.
        """
        limit = min(EXTERNAL_S, self.external_s())
        request = Load(str(point), solver=point.solver, config=str(point.config))
        reply = self.runner.load(request, limit) if limit > 0 else None
        if reply is None or (isinstance(reply, Refused) and limit < EXTERNAL_S and self.external_s() <= 0):
            return None
        if isinstance(reply, Refused):
            self._fail(point, reply)
            return None
        record = replace(
            timed(self.job.blank(point), reply.quick), error=reply.error, bound=reply.bound, compiler=reply.made_by
        )
        self.log.add(point, record, reply.quick.low_us * 1e-6)
        self.log.certified.add(point)  # what a library computes here is all that can be checked of it
        return point

    def certify(self, point: Point) -> bool:
        """Make the checks that a config must pass before it may be chosen; writes a failed record if it fails."""
        if point not in self.log.certified:
            refused = self.runner.certify(str(point), CERTIFIED_RUNS * self.limit_s(point))
            if refused is not None:
                self._fail(point, refused)
                return False
            self.log.certified.add(point)
        return True

    def check(self, name: str, point: Point, plan: Plan, paths: Sequence[Path]) -> Loaded | Refused:
        """Load a plan in the worker under ``name``."""
        return self.runner.load(Load(name, encode(plan), tuple(map(str, paths))), self.limit_s(point))

    def check_all(self, name: str, point: Point, plan: Plan, paths: Sequence[Path]) -> Refused | None:
        """All checks of a plan, which is not kept; why it may not be used, if so."""
        reply = self.check(name, point, plan, paths)
        refused = reply if isinstance(reply, Refused) else None
        if refused is None:
            refused = self.runner.certify(name, CERTIFIED_RUNS * self.limit_s(point))
        self.runner.unload([name])
        return refused

    def race(
        self, points: Sequence[Point], rounds: int, budget_s: float, drop_ratio: float | None, compares: bool = False
    ) -> dict[Point, Timing]:
        """Time loaded configs head to head; those that die are recorded as failed.

        With ``compares``, configs whose numbers are wrong after the last call are recorded as failed too.
        """
        named = {str(point): point for point in points}
        longest = max((self.log.time_s.get(point, 0.0) for point in points), default=0.0)
        limit = 20.0 + 4 * budget_s + 100 * len(points) * max(longest, 2e-3)
        result = self.runner.race(list(named), rounds, budget_s, limit, drop_ratio, compares)
        for name, refused in result.failed.items():
            self._fail(named[name], refused)
        return {named[name]: timing for name, timing in result.timings.items()}

    def _rank(self, estimates: dict[Point, Timing], seconds: float) -> None:
        leader = self._leader(estimates)
        order = sorted(estimates, key=lambda point: estimates[point].low_us)
        fastest = estimates[order[0]].low_us
        if leader is not None:
            fastest = min(fastest, self.log.time_s[leader] * 1e6)
        room = int(
            min(len(order), seconds / (LEAST_ROUNDS * self.rested(max(fastest, 1e-3) * 1e-6)) - (leader is not None))
        )
        # The machine may be slower now than when the leader was timed, so two enter even if they were slower.
        entrants = order[: max(2, sum(estimates[point].low_us <= QUICK * fastest for point in order))][: max(0, room)]
        racers = [*entrants, *([leader] if entrants and leader is not None else [])]
        result = self.race(racers, ROUNDS, 0.05 * len(entrants), DROP)
        scale = self.log.time_s[leader] * 1e6 / result[leader].low_us if leader in result else 1.0
        for point, quick in estimates.items():
            if not self.log.records[point].ok:
                continue
            timing = result.get(point, quick)
            self.log.add(point, timed(self.log.records[point], timing), timing.low_us * 1e-6 * scale)

    def _leader(self, fresh: dict[Point, Timing]) -> Point | None:
        """The fastest config of earlier batches that is loaded."""
        loaded = set(self.runner.loaded)
        ordered = self.log.fastest(len(self.log.time_s))
        return next((point for point in ordered if point not in fresh and str(point) in loaded), None)

    def _fail(self, point: Point, refused: Refused) -> None:
        """A failed record of a config."""
        record = self.log.records.get(point, self.job.blank(point)).failed(refused.reason)
        self.log.add(point, replace(record, error=refused.error, bound=refused.bound), None)

    def limit_s(self, point: Point) -> float:
        """How long checking one config may take before it counts as hanging."""
        best = self.log.best()
        if best is not None:
            return 3.0 + 200 * self.log.time_s[best] + 10 * self.job.predict(point)
        # Nothing is known yet: slower than 0.1 GFLOP/s a core is no kernel.
        return 10.0 + flops(self.job.signature) / 1e8 / self.job.target.cores + 10 * self.job.predict(point)


def timed(record: Record, timing: Timing) -> Record:
    """``record`` with a time."""
    return replace(
        record, time_us=timing.median_us, spread_us=timing.spread_us, samples=timing.samples, method=timing.method
    )
