"""Tunes the problems of a model: measures each once, then spends the time where it is expected to gain most.

Nothing but the databases is kept between two runs. What they hold of this machine, compiler and solver revision is not
measured again, and a problem whose search has converged is not searched again: a second run begins where the first
ended.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilesmith.db.records import Record
from tilesmith.errors import InterruptedSearchError, NoSolutionError
from tilesmith.measure.machine import Machine, machine_of, roofline_seconds
from tilesmith.problems.rewrite import Signature
from tilesmith.ready.held import Place, held_answer
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
from tilesmith.ready.telling import Effort, compare_and_tell, ended_of_held, search_and_tell
from tilesmith.ready.watch import tasks_of
from tilesmith.tune import session
from tilesmith.tune.process import Workers
from tilesmith.tune.progress import LATE, PASSED_OVER, STOPPED, Ended, Event, Progress, Watcher, silent
from tilesmith.tune.retune import current_setup
from tilesmith.tune.session import TuneResult

STARTS = 4  # configs that databases hold of a problem, to begin its search with
GRACE_S = 0.5  # of the budget: to end


def tune_problems(
    calls: Mapping[Signature, int], place: Place, *, seconds: float, others: Mapping[str, int] | None = None,
    progress: Listener | None = None, seed: int = 0, watcher: Watcher = silent, library: bool = True,
) -> ModelResult:  # fmt: skip
    """Tune the problems that ``calls`` counts. Ctrl-C ends it early; all that was measured is kept and in the result.

    ``progress`` gets the sums, ``watcher`` what happens to each problem. With ``library`` PyTorch's own operator is
    timed, too. ``seconds`` may be infinite: then only a list that no search improves ends it. They do not
    include the interruption of the last search, which ends two seconds late at most. Raises ``NoCompilerError`` and
    ``DatabaseError``.
    """
    tuning = _Tuning(calls, place, seconds, progress or (lambda state: None), seed, watcher, library)
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
        self, calls: Mapping[Signature, int], place: Place, seconds: float, listener: Listener, seed: int,
        watcher: Watcher, library: bool,
    ) -> None:  # fmt: skip
        self._calls, self._place, self._budget_s = calls, place, seconds
        self._listener, self._seed, self._watcher, self._library = listener, seed, watcher, library
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
        rows = [ModelRow(task.signature, task.calls) for task in tasks_of(self._calls.items())]
        self.standings = [self._standing(row, machine) for row in rows]
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
            self._read(self._working, STOPPED)

    # --- what is known ------------------------------------------------------------------------------------------------

    def _standing(self, row: ModelRow, machine: Machine) -> Standing:
        signature, place = row.signature, self._place
        standing = Standing(row, 0.0, roofline_seconds(signature, place.target, machine))
        try:
            job = place.job(signature)
            standing.estimate_s = max(job.predict(job.untuned), standing.least_s)
        except NoSolutionError as error:
            standing.row = replace(row, state=FAILED, reason=str(error))
            self._watcher(Ended(_key(standing), FAILED, reason=str(error)))
            return standing
        self._read(standing, PASSED_OVER)
        return standing

    def _read(self, standing: Standing, outcome: str) -> None:
        """Take over what is held of today's, and tell it."""
        held = held_answer(standing.signature, self._place, self._now)
        if held is None:
            if outcome == STOPPED:
                self._watcher(Ended(_key(standing), STOPPED))
            return
        state = CONVERGED if held.converged else SEARCHED if held.searched else MEASURED
        standing.searches = max(standing.searches, int(state != MEASURED))
        standing.row = _with_times(standing.row, held.best, held.untuned_us, state)
        self._watcher(ended_of_held(_key(standing), outcome, held))

    # --- what is done -------------------------------------------------------------------------------------------------

    def _act(self, action: Action, workers: Workers) -> None:
        standing, place, measures = action.standing, self._place, action.measures
        words = f"{'measuring' if measures else 'searching'} {in_words(standing.signature)}"
        self._tell(words)
        before_us = standing.row.tuned_us
        effort = Effort(
            "defaults" if measures else "model", None, action.limit_s, self._seed,
            self._starts(standing.signature), hard=True,
        )  # fmt: skip
        found = search_and_tell(standing.signature, place, effort, lambda event: self._hear(words, event), workers)
        if isinstance(found, Ended):
            if found.outcome == LATE:
                standing.late += 1
            else:
                standing.row = replace(standing.row, state=FAILED, reason=found.reason)
            return
        result = found
        _note_result(standing, result, searched=not measures, before_us=before_us)
        if measures:
            self._time_pytorch(standing)
        self._tell(f"{words}: {result.record.solver} {result.record.time_us:.1f} us")

    def _starts(self, signature: Signature) -> Sequence[tuple[str, str]]:
        """The records of all layers for this target: a shipped config takes part, so nothing slower replaces it."""
        answers = self._place.layers.answers(signature.canonical.key(), self._place.target.name)
        return [(each.record.solver, each.record.config) for each in answers if each.record.ok][:STARTS]

    def _time_pytorch(self, standing: Standing) -> None:
        if self._library:
            self._tell(f"PyTorch: {in_words(standing.signature)}")
            time_us = compare_and_tell(standing.signature, self._place, self._watcher)
            standing.row = replace(standing.row, pytorch_us=time_us)

    def _hear(self, words: str, event: Event) -> None:
        self._watcher(event)
        if isinstance(event, Progress):
            self._tell(_searching(words, event))

    def _tell(self, doing: str) -> None:
        rows = [each.row for each in self.standings]
        timed = [row for row in rows if row.speedup is not None]
        state = ModelProgress(
            doing, sum(row.tuned_us is not None for row in rows), len(rows), self.spent_s, self._budget_s,
            sum(row.calls * (row.before_us or 0.0) for row in timed),
            sum(row.calls * (row.after_us or 0.0) for row in timed),
        )  # fmt: skip
        self._listener(state)


def _key(standing: Standing) -> str:
    return standing.signature.canonical.key()


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
