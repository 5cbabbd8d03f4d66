"""Tunes the problems of a model: measures each once, then spends the time where it is expected to gain most.

Nothing but the databases is kept between two runs. What they hold of this machine, compiler and solver revision is not
measured again, and a problem whose search has converged is not searched again: a second run begins where the first
ended.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilesmith.compare.own_operator import time_own_operator
from tilesmith.db.layers import Layers
from tilesmith.db.records import Record
from tilesmith.errors import (
    CompileError,
    InterruptedSearchError,
    LaunchError,
    NoSolutionError,
    OutOfTimeError,
    ProblemError,
)
from tilesmith.measure.machine import Machine, machine_of, roofline_seconds
from tilesmith.problems.rewrite import Signature
from tilesmith.ready.model_budget import Action, Standing, next_action
from tilesmith.ready.model_records import (
    BUDGET,
    CONVERGED,
    FAILED,
    INTERRUPTED,
    MEASURED,
    SEARCHED,
    Listener,
    ModelProgress,
    ModelResult,
    ModelRow,
    in_words,
)
from tilesmith.solvers.external.names import takes_part
from tilesmith.targets.target import Target
from tilesmith.toolchain.cache import ArtifactCache
from tilesmith.tune import session
from tilesmith.tune.job import Job, make_job
from tilesmith.tune.process import Workers
from tilesmith.tune.progress import Progress
from tilesmith.tune.retune import current_setup
from tilesmith.tune.session import TuneResult

STARTS = 4  # configs that databases hold of a problem, to begin its search with
GRACE_S = 0.5  # of the budget: to end
_log = logging.getLogger("tilesmith.ready")


@dataclass(frozen=True)
class Place:
    """Where problems are tuned: the target, CUDA device ``ordinal``, databases and cache.

    ``external``: PyTorch's own CUDA kernels compete (None: where PyTorch is loaded and TILESMITH_EXTERNAL lets them).
    """

    target: Target
    ordinal: int
    layers: Layers
    cache: ArtifactCache
    external: bool | None = None


def tune_problems(
    calls: Mapping[Signature, int], place: Place, *, seconds: float, others: Mapping[str, int] | None = None,
    progress: Listener | None = None, seed: int = 0,
) -> ModelResult:  # fmt: skip
    """Tune the problems that ``calls`` counts. Ctrl-C ends it early; all that was measured is kept and in the result.

    ``seconds`` do not include the interruption of the last search, which ends two seconds late at most. Raises
    ``NoCompilerError`` and ``DatabaseError``.
    """
    tuning = _Tuning(calls, place, seconds, progress or (lambda state: None), seed)
    ended = INTERRUPTED
    try:
        ended = tuning.run()
    except (KeyboardInterrupt, InterruptedSearchError):
        tuning.recover()
    rows = sorted((each.row for each in tuning.standings), key=lambda row: -row.calls * (row.after_us or 0.0))
    return ModelResult(place.target.name, tuple(rows), tuple((others or {}).items()), round(tuning.spent_s, 3), ended)


class _Tuning:
    """The loop of actions."""

    def __init__(
        self, calls: Mapping[Signature, int], place: Place, seconds: float, listener: Listener, seed: int
    ) -> None:
        self._calls, self._place, self._budget_s = calls, place, seconds
        self._listener, self._seed = listener, seed
        self._began = time.monotonic()
        self.standings: list[Standing] = []
        self._working: Standing | None = None

    @property
    def spent_s(self) -> float:
        return time.monotonic() - self._began

    @property
    def _left_s(self) -> float:
        return self._budget_s - GRACE_S - self.spent_s

    def run(self) -> str:
        """Act until no action is worth its time (``converged``) or no time is left (``budget``)."""
        place = self._place
        self._tell("measuring the machine")
        self._now = current_setup(place.target, place.ordinal)
        machine = machine_of(place.target, place.cache, place.ordinal)
        self.standings = [self._standing(row, machine) for row in _merged(self._calls)]
        for each in sorted(self.standings, key=lambda each: -each.weight_s):
            if each.row.pytorch_us is None and each.row.tuned_us is not None and self._left_s > 0:
                self._time_pytorch(each)
        with Workers() as workers:
            while (action := next_action(self.standings, self._left_s)) is not None:
                self._working = action.standing
                self._act(action, workers)
                self._working = None
        return CONVERGED if next_action(self.standings, float("inf")) is None else BUDGET

    def recover(self) -> None:
        """Read what an interrupted search has recorded."""
        if self._working is not None:
            self._read(self._working)

    # --- what is known ------------------------------------------------------------------------------------------------

    def _standing(self, row: ModelRow, machine: Machine) -> Standing:
        signature, place = row.signature, self._place
        standing = Standing(row, 0.0, roofline_seconds(signature, place.target, machine))
        try:
            job = self._job(signature)
            standing.estimate_s = max(job.predict(job.untuned), standing.least_s)
        except NoSolutionError as error:
            standing.row = replace(row, state=FAILED, reason=str(error))
            return standing
        self._read(standing)
        return standing

    def _job(self, signature: Signature) -> Job:
        place = self._place
        return make_job(signature, place.target, "find", device=place.ordinal, external=takes_part(place.external))

    def _read(self, standing: Standing) -> None:
        """Take over what the written database holds that was measured with today's solvers, compiler and machine."""
        database, target = self._place.layers.writable, self._place.target.name
        job = self._job(standing.signature)
        best = database.best(job.problem, target, self._is_todays)
        if best is None:
            return
        untuned = (job.untuned.solver, str(job.untuned.config))
        trials = [record for record in database.trials(job.problem, target, job.untuned.solver) if record.ok]
        found = next((r for r in trials if (r.solver, r.config) == untuned and self._is_todays(r)), None)
        search = database.search(job.problem, target)
        state = MEASURED
        if search is not None and search.strategy != "defaults":
            state = CONVERGED if search.ended == session.CONVERGED else SEARCHED
        standing.searches = max(standing.searches, int(state != MEASURED))
        untuned_us = None if found is None else found.time_us
        standing.row = _with_times(standing.row, best, untuned_us, state)

    def _is_todays(self, record: Record) -> bool:
        return not self._now.changes(record)

    # --- what is done -------------------------------------------------------------------------------------------------

    def _act(self, action: Action, workers: Workers) -> None:
        standing, place, measures = action.standing, self._place, action.measures
        words = f"{'measuring' if measures else 'searching'} {in_words(standing.signature)}"
        self._tell(words)
        before_us = standing.row.tuned_us
        try:
            result = session.tune(
                standing.signature, place.target, database=place.layers.writable, cache=place.cache,
                strategy="defaults" if measures else "model", max_seconds=action.limit_s, hard=True,
                seed=self._seed, progress=lambda state: self._tell(_searching(words, state)), device=place.ordinal,
                external=place.external, first=self._starts(standing.signature), workers=workers,
            )  # fmt: skip
        except OutOfTimeError:
            standing.late += 1
            return
        except (NoSolutionError, CompileError, LaunchError, ProblemError) as error:
            _log.info("%s: %s", in_words(standing.signature), error)
            standing.row = replace(standing.row, state=FAILED, reason=str(error))
            return
        _note_result(standing, result, searched=not measures, before_us=before_us)
        if measures:
            self._time_pytorch(standing)
        self._tell(f"{words}: {result.record.solver} {result.record.time_us:.1f} us")

    def _starts(self, signature: Signature) -> Sequence[tuple[str, str]]:
        """What any layer holds for this target: a shipped config takes part, so nothing slower replaces it."""
        answers = self._place.layers.answers(signature.canonical.key(), self._place.target.name)
        return [(each.record.solver, each.record.config) for each in answers if each.record.ok][:STARTS]

    def _time_pytorch(self, standing: Standing) -> None:
        place = self._place
        self._tell(f"PyTorch: {in_words(standing.signature)}")
        try:
            timing = time_own_operator(standing.signature, place.target, place.cache, place.ordinal)
        except (LaunchError, MemoryError, RuntimeError) as error:
            _log.info("PyTorch has no time for %s: %s", in_words(standing.signature), error)
            return
        if timing is not None:
            standing.row = replace(standing.row, pytorch_us=timing.median_us)

    def _tell(self, doing: str) -> None:
        rows = [each.row for each in self.standings]
        timed = [row for row in rows if row.speedup is not None]
        state = ModelProgress(
            doing, sum(row.tuned_us is not None for row in rows), len(rows), self.spent_s, self._budget_s,
            sum(row.calls * (row.before_us or 0.0) for row in timed),
            sum(row.calls * (row.after_us or 0.0) for row in timed),
        )  # fmt: skip
        self._listener(state)


def _merged(calls: Mapping[Signature, int]) -> list[ModelRow]:
    """One row for each canonical problem, by the spelling that was met first."""
    found: dict[Signature, ModelRow] = {}
    for signature, count in calls.items():
        row = found.get(signature.canonical)
        found[signature.canonical] = (
            ModelRow(signature, count) if row is None else replace(row, calls=row.calls + count)
        )
    return list(found.values())


def _with_times(row: ModelRow, best: Record, untuned_us: float | None, state: str) -> ModelRow:
    return replace(
        row,
        untuned_us=untuned_us,
        tuned_us=best.time_us,
        solver=best.solver,
        config=best.config,
        state=state,
        reason="",
    )


def _note_result(standing: Standing, result: TuneResult, searched: bool, before_us: float | None) -> None:
    """The times of both come from one race."""
    record, default = result.record, result.default
    state = MEASURED if not searched else CONVERGED if result.ended == session.CONVERGED else SEARCHED
    standing.row = _with_times(standing.row, record, None if default is None else default.time_us, state)
    if searched:
        standing.searches += 1
        after_us = record.time_us or 0.0
        standing.last_gain = max(0.0, 1.0 - after_us / before_us) if before_us else 0.0


def _searching(words: str, state: Progress) -> str:
    best = "" if state.best_us is None else f", best {state.best_us:.1f} us"
    return f"{words}: {state.trials} configs{best}"
