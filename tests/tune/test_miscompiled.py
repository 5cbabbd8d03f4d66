"""A compiler that makes wrong kernels is found out by every way to a kernel: ``tune``, ``hybrid`` and ``verify``."""

from __future__ import annotations

import json
import re

import pytest
from spoiled_solver import FAULTS, SIGNATURE, Spoiled, spoiling_compiler

from tilesmith.cli.main import run
from tilesmith.db.opening import open_database
from tilesmith.dispatch.kept_calls import forget
from tilesmith.dispatch.launchable import get_launchable
from tilesmith.errors import NoSolutionError
from tilesmith.problems.driver import command_of
from tilesmith.solvers import table_cpu
from tilesmith.solvers.c.reference.solver import ReferenceSolver
from tilesmith.solvers.solver import Plain
from tilesmith.targets.detect import host_target
from tilesmith.toolchain.cache import ArtifactCache
from tilesmith.toolchain.compilers import find_compiler
from tilesmith.tune.session import tune

TARGET = host_target(2)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """The folder of the spoiling compiler, and of the cache: one test's spoiled kernels are those of the next."""
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="module")
def spoiling_path(compiled):
    return spoiling_compiler(compiled, find_compiler().command)


@pytest.fixture
def place(tmp_path, compiled, monkeypatch):
    forget()
    monkeypatch.setattr(table_cpu, "CPU_SOLVERS", (*map(Spoiled, FAULTS), ReferenceSolver()))
    yield {"database": open_database(tmp_path / "t.db"), "cache": ArtifactCache(compiled / "cache")}
    forget()


@pytest.fixture
def spoiling(spoiling_path, monkeypatch):
    monkeypatch.setenv("CC", spoiling_path)


def answers(database):
    return {record.solver: record for record in database.ranking(SIGNATURE.canonical.key(), TARGET.name)}


def assert_each_fault_is_found(database):
    found = answers(database)
    assert {name for name, record in found.items() if record.ok} == {"c_reference"}
    for name, (_, _, words) in FAULTS.items():
        assert found[name].status == "failed"
        assert re.search(words, found[name].reason), f"{name}: {found[name].reason}"


def test_without_a_fault_every_kernel_passes(place):
    tune(SIGNATURE, TARGET, strategy="exhaustive", max_seconds=None, **place)
    found = answers(place["database"])
    assert {name: record.reason for name, record in found.items() if not record.ok} == {}
    assert set(FAULTS) <= set(found)


def test_tune_finds_every_miscompiled_kernel(place, spoiling):
    result = tune(SIGNATURE, TARGET, strategy="exhaustive", max_seconds=None, **place)
    assert result.record.solver == "c_reference"
    assert result.failed == len(FAULTS)
    assert_each_fault_is_found(place["database"])


def test_hybrid_finds_every_miscompiled_kernel(place, spoiling):
    launch = get_launchable(SIGNATURE, target=TARGET, mode="hybrid", **place)
    assert launch.solver == "c_reference"
    assert_each_fault_is_found(place["database"])


def test_verify_finds_miscompiled_kernels(place, spoiling, compiled, tmp_path, monkeypatch, capsys):
    """A third of them: its checks are those of a search, which finds all."""
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(compiled / "cache"))
    monkeypatch.setenv("TILESMITH_DB_PATH", str(tmp_path / "other.db"))
    for name in list(FAULTS)[::3]:
        words = FAULTS[name][2]
        monkeypatch.setenv("TILESMITH_ONLY_SOLVER", name)
        assert run(["verify", command_of(SIGNATURE), "--json", "--threads", "2"]) == 1
        (row,) = map(json.loads, capsys.readouterr().out.splitlines())
        assert (row["solver"], row["status"]) == (name, "failed")
        assert re.search(words, row["reason"]), f"{name}: {row['reason']}"


def test_verify_passes_a_right_kernel(place, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TILESMITH_ONLY_SOLVER", "crashes")
    assert run(["verify", command_of(SIGNATURE), "--json", "--threads", "2", "--specials"]) == 0
    (row,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (row["solver"], row["status"]) == ("crashes", "ok")


@pytest.mark.parametrize("mode", ["hybrid", "normal"])
def test_where_every_measured_kernel_fails_the_plain_reference_answers(place, spoiling, monkeypatch, mode):
    solvers = (Spoiled("crashes"), Spoiled("one_element_off"), ReferenceSolver())
    monkeypatch.setattr(table_cpu, "CPU_SOLVERS", solvers)
    launch = get_launchable(SIGNATURE, target=TARGET, mode=mode, **place)
    assert (launch.solver, launch.choice.basis) == ("c_reference", "measurement")
    assert {name for name, record in answers(place["database"]).items() if not record.ok} == {
        "crashes", "one_element_off",
    }  # fmt: skip


def test_the_last_resort_is_checked_like_all_others(place, spoiling, monkeypatch):
    class Last(Spoiled, Plain):
        def predict(self, problem, config, target):
            return 1.0

    monkeypatch.setattr(table_cpu, "CPU_SOLVERS", (Spoiled("crashes"), Last("nan_becomes_0")))
    with pytest.raises(NoSolutionError, match="nan_becomes_0: .*wrong numbers"):
        get_launchable(SIGNATURE, target=TARGET, mode="hybrid", **place)
