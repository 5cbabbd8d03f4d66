"""Decides what the time for tuning a model is spent on next. Pure functions of what is known of each problem.

The value of an action is the time of all calls of its problem, times the part of it that the action is expected to
save, over the seconds that the action takes. The action with the largest value comes next.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilesmith.problems.rewrite import Signature
from tilesmith.ready.model_records import CONVERGED, FAILED, MEASURED, SEARCHED, UNMEASURED, ModelRow

MEASURE_GAIN = 0.3  # part that the best measured default is expected to save of an estimate, which is rough
MEASURE_S = 2.0  # that the measurement of a small problem's defaults takes
MEASURE_MOST_S = 30.0  # for those of a large problem
FIRST_SHARE = 0.3  # part of the distance to the roofline that a first search is expected to save
FADING = 0.25  # from one search of a problem to the next
KEPT = 0.5  # part of the last search's gain that is expected of the next
LEAST_S, MOST_S = 5.0, 40.0  # of one search; less time gives a search no answer
SHARE = 0.5  # of the time that is left, for the searches of one round
WORTH = 5e-4  # part of the model's time: a smaller expected gain is not worth a search


@dataclass
class Standing:
    """Facts of one problem while its model is tuned.

    ``estimate_s`` is the predicted time of a call, ``least_s`` the roofline's. ``searches`` counts those since the
    beginning, ``late`` those that ran out of time before an answer, ``last_gain`` is the part that the last one saved.
    """

    row: ModelRow
    estimate_s: float
    least_s: float
    searches: int = 0
    late: int = 0
    last_gain: float | None = None

    @property
    def signature(self) -> Signature:
        return self.row.signature

    @property
    def call_s(self) -> float:
        """Seconds of one call, as well as they are known."""
        return self.estimate_s if self.row.tuned_us is None else self.row.tuned_us * 1e-6

    @property
    def weight_s(self) -> float:
        """Seconds of all calls."""
        return self.row.calls * self.call_s

    @property
    def expected_gain(self) -> float:
        """The part of the problem's time that the next action is expected to save."""
        state = self.row.state
        if state in (CONVERGED, FAILED):
            return 0.0
        if state == UNMEASURED:
            return MEASURE_GAIN
        assert state in (MEASURED, SEARCHED)
        first = FIRST_SHARE * max(0.0, 1.0 - self.least_s / self.call_s)
        faded = first * FADING ** (self.searches + self.late)
        return faded if self.last_gain is None else max(faded, KEPT * self.last_gain)


@dataclass(frozen=True)
class Action:
    """Measure the defaults of a problem, or search it. ``limit_s`` is a hard limit in seconds."""

    standing: Standing
    limit_s: float

    @property
    def measures(self) -> bool:
        return self.standing.row.state == UNMEASURED


def next_action(standings: Iterable[Standing], left_s: float) -> Action | None:
    """The action of the largest value; None if no action is worth its time, or too little time is left."""
    known = list(standings)
    total = sum(each.weight_s for each in known)
    searchable_s = sum(each.weight_s * each.expected_gain for each in known if each.row.state != UNMEASURED)
    best: Action | None = None
    most = 0.0
    for each in known:
        gain_s, measures = each.weight_s * each.expected_gain, each.row.state == UNMEASURED
        limit_s = MEASURE_MOST_S if measures else _search_s(each, searchable_s, left_s)
        value = gain_s / (MEASURE_S if measures else limit_s)
        enough = left_s >= (MEASURE_S if measures else LEAST_S)
        if enough and value > most and (measures or gain_s > WORTH * total):
            best, most = Action(each, min(limit_s, left_s)), value
    return best


def _search_s(standing: Standing, searchable_s: float, left_s: float) -> float:
    """Seconds of the next search: a share of the time left by expected gain; twice as long after one that was late."""
    share = standing.weight_s * standing.expected_gain / searchable_s if searchable_s else 1.0
    return min(max(SHARE * left_s * share, LEAST_S), MOST_S) * 2.0**standing.late
