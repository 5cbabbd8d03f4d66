"""Whatever sealed records a database holds, a call answers or refuses in words of its own: in every mode and way.

``python tests/torture/hostile.py`` does the same with 500 records, and measures in earnest.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from hostile_calls import GOOD, SIGNATURE, SOLVERS, TARGET, ask_everything
from hostile_records import WAYS, can_be_put, clear, sealed, values_like
from tilesmith.db.opening import open_database
from tilesmith.db.records import Record
from tilesmith.dispatch import hits, resolve
from tilesmith.dispatch.launchable import forget_launchables, get_launchable
from tilesmith.errors import LaunchError
from tilesmith.toolchain.sealed import bind, unbind


@pytest.fixture
def quick(monkeypatch):
    """A search that keeps one record, and a timer that fails: what is measured is not what is asked here."""

    def measured(request, *rest):
        request.layers.writable.put_result(Record(**GOOD | {"solver": "c_reference", "config": ""}))

    def timed(*arguments):
        raise LaunchError("no time here")

    monkeypatch.setattr(resolve, "_measure", measured)
    monkeypatch.setattr(resolve, "_timed", timed)


@settings(
    max_examples=8, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
)  # fmt: skip
@given(several=st.lists(values_like(GOOD, SOLVERS), min_size=1, max_size=8), way=st.sampled_from(WAYS))
def test_any_record_that_seals_and_parses_is_an_answer_or_a_typed_error(quick, tmp_path, several, way):
    rows = [row for row in map(sealed, several) if row is not None and can_be_put(row, way)]
    assume(rows)
    clear(tmp_path)
    assert ask_everything(rows, way, tmp_path) == []


@pytest.mark.parametrize("way", WAYS)
def test_a_negative_spread_costs_its_own_record_alone(quick, way, tmp_path):
    assert ask_everything([sealed(GOOD | {"spread_us": -1.0})], way, tmp_path) == []
    assert get_launchable(SIGNATURE, target=TARGET, mode="fast").choice.record is None or way in ("user", "files")


@pytest.mark.parametrize(
    "config", ["mr=99999999", "x", "mr=1=2", "", "mr=1 mr=1", "a=" + "9" * 1900, "mr=8 nv=2 nosuch=1"]
)
def test_a_config_that_does_not_exist_is_passed_over(quick, config, tmp_path):
    """Also where sources are written and where problems are made ready."""
    rows = [sealed(GOOD | {"solver": solver, "config": config}) for solver in SOLVERS]
    assert ask_everything(rows, "user", tmp_path) == []


def test_a_trial_without_a_spread_is_taken_into_a_search(tmp_path):
    """An imported trial of this very machine and compiler may say a time and no spread."""
    from tilesmith.tune.space import Config, Point
    from tilesmith.tune.trial_log import TrialLog

    log, point = TrialLog(), Point("c_dense", Config(()))
    log.add(point, Record(**GOOD | {"spread_us": None}), 1e-6)
    assert log.rescaled(point, 2.0).time_us == 2.0
    log.add(point, Record(**GOOD | {"time_us": 86_400e6}), 86_400.0)
    assert log.rescaled(point, 2.0).time_us == 86_400e6


def test_a_kept_decision_of_a_hostile_record_is_a_miss(tmp_path, monkeypatch):
    """What an earlier process kept goes through the same rules, and so does the trace that stands beside it."""
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    for _ in range(2):
        forget_launchables()
        get_launchable(SIGNATURE, target=TARGET, mode="hybrid")
    (path,) = (tmp_path / "cache" / "hits").iterdir()
    name, whole = f"hits/{path.name}", path.read_bytes()
    line, _, plan = unbind(name, whole).partition(b"\n")
    kept = json.loads(line)
    layer, role, fields, trace = kept["choice"]
    assert hits._choice_of(kept["choice"]).record == Record(*fields)
    hostile = [
        [layer, role, [*fields[:5], bad, *fields[6:]], trace]
        for bad in (-1.0, 0, "fast", None, True, [], 1e300, 10**400)
    ]
    hostile += [[layer, role, fields, [["s", "", "c", bad]]] for bad in ("1", [], {}, float("nan"), 10**400)]
    hostile += [[bad, role, fields, trace] for bad in (None, 3, [])]
    hostile += [[layer, role, fields, [[bad, ""]]] for bad in (None, 3)]
    hostile += [[layer, role, [*fields[:6], -1.0, *fields[7:]], trace], [layer, role, {}, []], "choice", 7, [], None]
    for choice in hostile:
        assert hits._choice_of(choice) is None, choice
        path.write_bytes(bind(name, json.dumps({**kept, "choice": choice}).encode() + b"\n" + plan))
        forget_launchables()
        assert get_launchable(SIGNATURE, target=TARGET, mode="hybrid").choice.basis == "database"
    assert open_database(tmp_path / "test.db").check() == ()
