"""A problem of another batch or image size: what was tuned there decides, where its config exists here, and says so."""

import sqlite3
from dataclasses import replace

import pytest

import tilesmith
from tilesmith import ConvSignature, GemmSignature, get_launchable
from tilesmith.cli.main import run
from tilesmith.db.layers import Layers
from tilesmith.db.opening import open_database
from tilesmith.db.records import Record
from tilesmith.dispatch import untuned
from tilesmith.dispatch.answers import neighbours_of
from tilesmith.dispatch.choice import DATABASE, NEAREST, NEIGHBOUR, PREDICTION
from tilesmith.dispatch.facts import options_of
from tilesmith.dispatch.locations import open_databases
from tilesmith.dispatch.neighbours import suited_of
from tilesmith.dispatch.request import Request
from tilesmith.dispatch.resolve import resolve
from tilesmith.errors import NoSolutionError
from tilesmith.solvers.solver import parse_config
from tilesmith.targets.detect import host_target
from tilesmith.toolchain.cache import ArtifactCache

HERE = host_target(1)


def conv(batch=1, height=8, width=8, **changes):
    fields = {"padding": 1, "shared_layout": "NHWC", **changes}
    return ConvSignature((batch, height, width, 16), (16, 3, 3, 16), **fields)


def put(signature, place=1, database=None, **changes):
    """A record of ``signature`` with a config of c_dense that is not its default, which was tried and is slow."""
    option = next(o for o in options_of(signature.canonical, HERE) if o.candidate.name == "c_dense")
    space, default = option.candidate.solver.search_space(option.candidate.geometry, HERE), parse_config(option.config)
    others = [
        config
        for name, values in space.axes.items()
        for value in values
        if (config := default.replace(**{name: value})) != default and space.allowed(config)
    ]
    record = Record(
        signature.canonical.key(), HERE.name, "c_dense", str(others[place]), option.candidate.solver.revision, 10.0,
        0.1, 9, error=0.1, bound=1.0,
    )  # fmt: skip
    slow = replace(record, config=str(default), time_us=1e6)
    record, database = replace(record, **changes), database or open_databases().writable
    database.put_result(record)
    database.record_trials([slow] if record.ok and record.solver == slow.solver and not changes else [])
    return record


def test_its_config_is_used_and_explained(capsys):
    record = put(conv(2))
    launch = get_launchable(conv(1))
    choice = launch.choice
    assert (launch.solver, launch.config) == (record.solver, record.config)
    assert (choice.basis, choice.role, choice.record, choice.time_us) == (NEIGHBOUR, "user", record, None)
    x, w = conv(1).get_sample_args(seed=0)
    assert abs(launch(x, w) - get_launchable(conv(1), only="c_reference")(x, w)).max() < 1e-4
    assert (
        run(["explain", "conv -n 1 -c 16 -H 8 -W 8 -k 16 -p 1 -q 1 -F 1 -I NHWC -f NHWC -O NHWC", "--threads", "1"])
        == 0
    )
    out = capsys.readouterr().out
    assert "measured for the neighbour N=2 H=8 W=8, in user layer" in out
    assert "c_reference" in out  # the candidates that were not asked are listed all the same


@pytest.mark.parametrize(
    "other",
    [
        conv(3), conv(1, 17), conv(1, 8, 3), conv(1, padding=0), conv(1, stride=2), conv(1, mode="bwd"),
        conv(1, deterministic=True), conv(1, workspace_limit=1 << 20),
        ConvSignature((1, 16, 8, 8), (16, 16, 3, 3), padding=1, shared_layout="NCHW"),
        ConvSignature((1, 8, 8, 32), (16, 3, 3, 32), padding=1, shared_layout="NHWC"),
    ],
)  # fmt: skip
def test_others_are_no_neighbours(other):
    put(conv(1))
    assert get_launchable(other, mode="fast").choice.basis == PREDICTION


def test_the_nearest_decides_and_rows_of_products_are_sizes():
    database = open_database(None)
    for m in (13, 20, 32, 48, 49):
        database.put_result(Record(GemmSignature(m=m, n=16, k=8).canonical.key(), HERE.name, "c_dense", "", 1, 5.0))
    found = Layers((database,)).neighbours(GemmSignature(m=24, n=16, k=8).canonical.key(), HERE.name)
    assert [key.split(";")[1] for key in found] == ["m=20", "m=32", "m=13", "m=48"]
    assert not Layers((database,)).neighbours(GemmSignature(m=24, n=16, k=9).canonical.key(), HERE.name)
    assert not Layers((database,)).neighbours(found[0], "x86_64-v3:9")


def test_what_estimates_were_off_there_corrects_them_here(tmp_path):
    """Each config by its own time there, this problem's default by that of the most similar one."""
    database = open_database(None)
    record = put(conv(2), 1, database)
    request = Request(conv(1), HERE, "fast", database, ArtifactCache(tmp_path))
    option = next(o for o in options_of(conv(1).canonical, HERE) if o.candidate.name == "c_dense")
    found = {one.config: one.seconds for one in suited_of(request, *neighbours_of(request)[0])}
    assert found.keys() == {record.config, option.config}
    solver = option.candidate.solver
    for text, time_us in ((record.config, 10.0), (option.config, 1e6)):
        here, there = (solver.predict(s.canonical.geometry, parse_config(text), HERE) for s in (conv(1), conv(2)))
        assert found[text] == pytest.approx(time_us * 1e-6 * here / there)


def test_its_choice_is_kept_until_something_else_was_measured(tmp_path):
    database = open_database(None)
    record = put(conv(2), 1, database)
    request = Request(conv(1), HERE, "fast", database, ArtifactCache(tmp_path))
    made = resolve(request).choice
    kept = untuned.recall(request)
    assert (kept.basis, kept.solver, kept.config, kept.record) == (NEIGHBOUR, made.solver, made.config, record)
    assert (kept.layer, kept.role, kept.time_us) == (made.layer, made.role, None)
    database.record_trials([replace(record, config=kept.config, time_us=1e7)])
    database.put_result(replace(record, config=kept.config, time_us=1e7))
    assert untuned.recall(request) is None
    assert resolve(request).choice.config != made.config


def test_an_exact_record_or_one_of_another_target_comes_first():
    put(conv(2))
    near = put(conv(1), 2, target=f"{HERE.arch}:7")
    assert get_launchable(conv(1)).choice.record == near
    assert get_launchable(conv(1)).choice.basis == NEAREST
    tilesmith.forget()
    exact = put(conv(1), 0)
    assert (get_launchable(conv(1)).choice.basis, get_launchable(conv(1)).choice.record) == (DATABASE, exact)


@pytest.mark.parametrize(
    "changes",
    [
        {"config": "mh=1"}, {"config": "rubbish"}, {"revision": 99}, {"solver": "nonesuch"},
        {"status": "failed", "time_us": None}, {"target": "sm_90a:132"},
    ],
)  # fmt: skip
def test_what_does_not_exist_here_is_passed_over(changes):
    put(conv(2), **changes)
    assert get_launchable(conv(1)).choice.basis == PREDICTION


def test_what_failed_here_is_not_taken_from_there():
    put(conv(2))
    put(conv(1), status="failed", time_us=None, reason="wrong numbers")
    choice = get_launchable(conv(1)).choice
    assert (choice.basis, choice.solver == "c_dense") == (PREDICTION, False)


def test_strict_mode_has_no_neighbours_and_modes_that_measure_measure_it():
    record = put(conv(2))
    get_launchable(conv(1), mode="fast")
    with pytest.raises(NoSolutionError, match="no database holds this problem"):
        get_launchable(conv(1), mode="strict")
    assert get_launchable(conv(1), mode="hybrid").choice.basis == "measurement"
    trials = open_databases().writable.trials(conv(1).key(), HERE.name)
    assert record.config in {trial.config for trial in trials}


def test_a_file_without_the_index_gets_it_when_it_is_opened_for_writing(tmp_path):
    path, problem = tmp_path / "old.db", conv(2).canonical.key()
    database = open_database(path)
    database.put_result(Record(problem, HERE.name, "c_dense", "", 1, 5.0))
    database.close()
    with sqlite3.connect(path) as connection:
        connection.execute("DROP INDEX neighbours")
    asked = conv(1).canonical.key()
    assert open_database(path, readonly=True).neighbours(asked, HERE.name) == ()
    assert open_database(path).neighbours(asked, HERE.name) == (problem,)
    assert open_database(path, readonly=True).neighbours(asked, HERE.name) == (problem,)
