"""Databases and specs that hold axes by the names of former days: every problem is answered, with its time."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from tilesmith import ConvSignature, get_launchable
from tilesmith.db.opening import open_database
from tilesmith.db.records import Record
from tilesmith.dispatch.facts import options_of
from tilesmith.dispatch.measuring import check_launchable
from tilesmith.dispatch.planning import existing_config
from tilesmith.dispatch.spec.choice import read_spec
from tilesmith.problems.keys import parse_key
from tilesmith.solvers.old_names import OLD_NAMES, read_config
from tilesmith.solvers.solver import parse_config
from tilesmith.solvers.table import candidates
from tilesmith.targets.cpu import cpu_target
from tilesmith.targets.detect import host_target
from tilesmith.tune.retune import Retuned, Stale
from tilesmith.tune.session import TuneResult

STORE = Path(__file__).parents[1] / "db" / "stores" / "v2.db"
PROBLEM = (
    "conv1;fwd;x=fp32,NHWC,1x8x8x16;w=fp32,NHWC,16x3x3x16;y=fp32,NHWC;stride=1x1;pad=1x1;dil=1x1;groups=1;acc=fp32"
)
SIGNATURE = ConvSignature((1, 8, 8, 16), (16, 3, 3, 16), padding=1, shared_layout="NHWC")
HERE = host_target(1)


def test_a_stored_database_answers_with_its_time(tmp_path):
    """``v2.db`` was written by the version before the words; its config exists by today's names."""
    shutil.copy(STORE, tmp_path / "v2.db")
    record = open_database(tmp_path / "v2.db", readonly=True).best(PROBLEM, "x86_64-v4:2:generic")
    assert (record.solver, record.time_us) == ("c_dense", 12.5)
    assert record.config.startswith("mh=1 mw=8 nv=1 rows=8")
    target = cpu_target("x86_64-v4", 2)
    candidate = next(c for c in candidates(parse_key(PROBLEM), target) if c.name == record.solver)
    config = existing_config(candidate, record.config, target)
    assert str(config).startswith("tile_h=1 tile_w=8 vectors=1 item_rows=8")
    assert candidate.solver.draft(candidate.geometry, config, target).sources


def old_text(solver: str, config: str) -> str:
    back = {new: old for old, new in OLD_NAMES[solver].items()}
    return " ".join(f"{back.get(name, name)}={value}" for name, value in parse_config(config).values)


@pytest.fixture
def answered(tmp_path, monkeypatch):
    """A database whose answer for the problem here has the old names."""
    option = next(o for o in options_of(SIGNATURE.canonical, HERE) if o.candidate.name == "c_dense")
    config = old_text("c_dense", option.config)
    assert config != option.config
    monkeypatch.setenv("TILESMITH_DB_PATH", str(tmp_path / "user.db"))
    record = Record(
        SIGNATURE.key(), HERE.name, "c_dense", config, option.candidate.solver.revision, 10.0, 0.1, 9, error=0.1,
        bound=1.0,
    )  # fmt: skip
    open_database(tmp_path / "user.db").put_results([record])
    return record


def test_an_answer_with_old_names_is_run(answered):
    launch = get_launchable(SIGNATURE)
    assert (launch.solver, launch.choice.basis, launch.choice.time_us) == ("c_dense", "database", 10.0)
    assert check_launchable(launch).ok


def test_the_same_config_by_other_names_is_no_change(answered):
    config = str(read_config("c_dense", answered.config))
    stale = Stale(SIGNATURE, answered, ("compiler",))
    same = Record(SIGNATURE.key(), HERE.name, "c_dense", config, 1, 9.0)
    other = Record(SIGNATURE.key(), HERE.name, "c_dense", config.replace("unroll=", "unroll=9"), 1, 9.0)
    assert not Retuned(stale, result(same)).changed
    assert Retuned(stale, result(other)).changed


def result(record: Record) -> TuneResult:
    found = object.__new__(TuneResult)
    object.__setattr__(found, "record", record)
    return found


def test_a_spec_with_old_names_is_read_with_one_note(tmp_path, caplog):
    path = tmp_path / "spec.toml"
    choice = "[[choice]]\nproblem = '-c 16'\nsolver = 'c_dense'\nconfig = 'mh=1 nv=2'\n"
    path.write_text(choice * 3)
    with caplog.at_level(logging.WARNING):
        entries = read_spec(path)
        read_spec(path)
    assert [str(entry.config) for entry in entries] == ["tile_h=1 vectors=2"] * 3
    (note,) = caplog.records
    assert f'{path}:4: axes have new names (the old ones are read, too): config = "tile_h=1 vectors=2"' in note.message


def test_a_spec_with_the_names_of_today_needs_no_note(tmp_path, caplog):
    path = tmp_path / "spec.toml"
    path.write_text("[[choice]]\nproblem = '-c 16'\nsolver = 'c_dense'\nconfig = 'tile_h=1 vectors=2'\n")
    with caplog.at_level(logging.WARNING):
        read_spec(path)
    assert not caplog.records
