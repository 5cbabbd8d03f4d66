"""The nearest target's config: only where nothing exact is at hand, only where it exists here, and said so."""

import logging
from dataclasses import replace

import pytest

import tilesmith
from tilesmith import ConvSignature, get_launchable
from tilesmith.cli.main import run
from tilesmith.db.records import Record
from tilesmith.dispatch import resolve
from tilesmith.dispatch.choice import NEAREST, PREDICTION
from tilesmith.dispatch.facts import options_of
from tilesmith.dispatch.locations import open_databases
from tilesmith.errors import NoSolutionError
from tilesmith.solvers.solver import parse_config
from tilesmith.targets.detect import host_target

SMALL = ConvSignature((1, 8, 8, 16), (16, 3, 3, 16), padding=1, shared_layout="NHWC")
HERE = host_target(1)
NEAR = f"{HERE.arch}:7"


@pytest.fixture(autouse=True)
def untold(monkeypatch):
    monkeypatch.setattr(resolve, "_told", set())


def other_config():
    """A config that the cost model would not choose."""
    option = next(o for o in options_of(SMALL.canonical, HERE) if o.candidate.name == "c_dense")
    space = option.candidate.solver.search_space(option.candidate.geometry, HERE)
    default = parse_config(option.config)
    for name, values in space.axes.items():
        for value in values:
            config = default.replace(**{name: value})
            if config != default and space.allowed(config):
                return str(config)
    raise AssertionError("a space of one point")


def put(target=NEAR, **changes):
    record = Record(
        SMALL.key(), target, "c_dense", other_config(), _revision("c_dense"), 10.0, 0.1, 9, error=0.1, bound=1.0
    )
    record = replace(record, **changes)
    open_databases().writable.put_result(record)
    return record


def _revision(solver):
    return next(o.candidate.solver.revision for o in options_of(SMALL.canonical, HERE) if o.candidate.name == solver)


def test_it_is_used_before_a_prediction_and_said_so(caplog):
    record = put()
    with caplog.at_level(logging.WARNING):
        launch = get_launchable(SMALL)
    assert (launch.solver, launch.config) == (record.solver, record.config)
    choice = launch.choice
    assert (choice.basis, choice.role, choice.record, choice.time_us) == (NEAREST, "user", record, None)
    assert NEAR in caplog.text
    assert HERE.name in caplog.text
    x, w = SMALL.get_sample_args(seed=0)
    tilesmith.forget()
    assert abs(launch(x, w) - get_launchable(SMALL, only="c_reference")(x, w)).max() < 1e-4


def test_it_is_told_once(caplog):
    put()
    with caplog.at_level(logging.WARNING):
        get_launchable(SMALL)
        tilesmith.forget()
        get_launchable(SMALL)
    assert len([line for line in caplog.messages if NEAR in line]) == 1


def test_the_same_arch_comes_first_then_the_family():
    far = put("x86_64-v2:1" if HERE.arch != "x86_64-v2" else "x86_64-v3:1")
    assert get_launchable(SMALL).choice.record == far
    tilesmith.forget()
    near = put()
    assert get_launchable(SMALL).choice.record == near
    tilesmith.forget()
    put("sm_90a:132")
    assert get_launchable(SMALL).choice.record == near


def test_an_exact_record_of_any_layer_comes_first(tmp_path, monkeypatch):
    team, user = tmp_path / "team.db", tmp_path / "user.db"
    monkeypatch.setenv("TILESMITH_DB_PATH", str(team))
    exact = put(HERE.name, solver="c_reference", config="", revision=_revision("c_reference"), time_us=500.0)
    monkeypatch.setenv("TILESMITH_DB_PATH", f"{team}:{user}")
    put()
    choice = get_launchable(SMALL).choice
    assert (choice.basis, choice.role, choice.layer, choice.record) == ("database", "team", str(team), exact)


@pytest.mark.parametrize(
    "changes",
    [
        {"config": "mh=1"}, {"config": "rubbish"}, {"config": "mh=999 mw=1"}, {"revision": 99},
        {"solver": "nonesuch"}, {"solver": "c_depthwise"}, {"status": "failed", "time_us": None},
    ],
)  # fmt: skip
def test_what_does_not_exist_here_is_passed_over(changes):
    put(**changes)
    assert get_launchable(SMALL).choice.basis == PREDICTION


def test_a_solver_that_failed_here_is_not_taken_from_elsewhere():
    put()
    put(HERE.name, status="failed", time_us=None, reason="wrong numbers")
    choice = get_launchable(SMALL).choice
    assert choice.basis == PREDICTION
    assert choice.solver != "c_dense"


def test_strict_uses_it_only_with_plan_and_kernels(tmp_path):
    put()
    cache = tmp_path / "cache"
    with pytest.raises(NoSolutionError, match="no database holds this problem"):
        get_launchable(SMALL, mode="strict", cache=cache)
    made = get_launchable(SMALL, mode="fast", cache=cache)
    strict = get_launchable(SMALL, mode="strict", cache=cache)
    assert (strict.choice.basis, strict.config, strict.remembered) == (NEAREST, made.config, True)


def test_modes_that_measure_measure_it_too():
    record = put()
    launch = get_launchable(SMALL, mode="hybrid")
    assert launch.choice.basis == "measurement"
    trials = open_databases().writable.trials(SMALL.key(), HERE.name)
    assert record.config in {trial.config for trial in trials if trial.solver == "c_dense"}


def test_explain_shows_it(capsys):
    put()
    command = "conv -n 1 -c 16 -H 8 -W 8 -k 16 -p 1 -q 1 -F 1 -I NHWC -f NHWC -O NHWC"
    assert run(["explain", command, "--threads", "1"]) == 0
    out = capsys.readouterr().out
    assert f"measured on {NEAR}, in user layer" in out
    assert "not measured here" in out


def test_a_record_that_cannot_be_built_does_not_fail_the_call(caplog):
    put(HERE.name, config="mh=999")
    with caplog.at_level(logging.WARNING):
        launch = get_launchable(SMALL)
    assert launch.choice.basis == PREDICTION
    assert "outside the search space" in caplog.text


def test_installed_databases_are_the_lowest_layers(tmp_path, monkeypatch):
    folder = tmp_path / "share"
    folder.mkdir()
    monkeypatch.setenv("TILESMITH_DB_PATH", str(folder / "b.db"))
    shipped = put(HERE.name)
    (folder / "notes.txt").write_text("no database")
    monkeypatch.setenv("TILESMITH_SYSTEM_DB_PATH", str(folder))
    monkeypatch.setenv("TILESMITH_DB_PATH", str(tmp_path / "user.db"))
    choice = get_launchable(SMALL).choice
    assert (choice.role, choice.layer, choice.record) == ("system", str(folder / "b.db"), shipped)
    tilesmith.forget()
    mine = put(HERE.name, time_us=99.0)
    assert get_launchable(SMALL).choice.record == mine
