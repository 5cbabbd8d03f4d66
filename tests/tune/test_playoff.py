"""What passes every check early, for the case that a search's time is over before its playoff."""

from __future__ import annotations

from tilesmith.db.records import Record
from tilesmith.solvers.solver import Config
from tilesmith.tune.playoff import to_certify
from tilesmith.tune.space import Point
from tilesmith.tune.trial_log import TrialLog

DEFAULT, GIVEN, FOUND = (Point(name, Config((("block_m", 64),))) for name in ("a", "b", "c"))


def log_of(seconds: dict[Point, float]) -> TrialLog:
    log = TrialLog()
    for point, time_s in seconds.items():
        log.add(point, Record("p", "t", point.solver, str(point.config), time_us=time_s * 1e6), time_s)
    return log


def test_the_first_best_config_is_certified_at_once():
    assert to_certify([FOUND, GIVEN, DEFAULT], DEFAULT, log_of({FOUND: 1.0, GIVEN: 2.0, DEFAULT: 3.0})) == [FOUND]
    assert to_certify([], DEFAULT, TrialLog()) == []


def test_a_search_that_began_with_a_slower_config_certifies_the_default_too():
    log = log_of({FOUND: 1.0, DEFAULT: 2.0, GIVEN: 3.0})
    log.certified.add(GIVEN)
    assert to_certify([FOUND, DEFAULT, GIVEN], DEFAULT, log) == [DEFAULT]
    assert to_certify([FOUND, GIVEN], DEFAULT, log) == []  # its kernels were unloaded
    log.certified.add(DEFAULT)
    assert to_certify([FOUND, DEFAULT, GIVEN], DEFAULT, log) == []


def test_a_default_that_is_slower_needs_no_certificate():
    log = log_of({GIVEN: 1.0, DEFAULT: 2.0})
    log.certified.add(GIVEN)
    assert to_certify([GIVEN, DEFAULT], DEFAULT, log) == []
