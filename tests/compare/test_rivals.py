"""A rival of another package is found by its entry point, checked, and timed like those that come with this one."""

import json
import logging
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from numpy_rival import RIVAL

from tilesmith.cli.main import run
from tilesmith.compare import rival as rivals
from tilesmith.compare.bench_records import Bench, is_close
from tilesmith.compare.benchmark import bench
from tilesmith.compare.cutlass.checkout import find_checkout
from tilesmith.compare.rival import GROUP, Rival, Way, absent_rivals, chosen_rivals, rivals_of
from tilesmith.dispatch.launchable import get_launchable
from tilesmith.errors import ArgumentError
from tilesmith.measure.machine import Machine
from tilesmith.measure.oracle import Oracle
from tilesmith.problems.gemm import GemmSignature
from tilesmith.targets.cuda import CUDA_TARGETS
from tilesmith.targets.detect import host_target

HERE = host_target(1)
GEMM = GemmSignature(24, 32, 16)
MACHINE = Machine("here", "here", "", 1e9, 1e9, None, 1e9, 1e9)
PAGE = Path(__file__).parents[2] / "docs" / "adding-a-rival.md"


@pytest.fixture
def installed(monkeypatch):
    """Entry points as an installed package declares them: ``add(name, place)``."""
    found = []
    monkeypatch.setattr(rivals, "entry_points", lambda group: found if group == GROUP else [])

    def add(name="numpy", place="numpy_rival:RIVAL"):
        found.append(EntryPoint(name, place, GROUP))

    return add


def test_the_packages_own():
    assert list(rivals_of(HERE)) == ["onednn", "torch_compile", "tvm"]
    gpu = CUDA_TARGETS["sm_90a"]
    assert list(rivals_of(gpu)) == ["cudnn", "cublas", "cutlass", "triton", "torch_compile", "tvm"]


def test_rivals_that_compile_are_measured_where_they_are_asked_for():
    assert [rival.name for rival in chosen_rivals((), HERE)] == ["onednn"]
    assert [rival.name for rival in chosen_rivals((), HERE, tried=True)][:2] == ["onednn", "torch_compile"]
    assert [rival.name for rival in chosen_rivals(["torch_compile"], HERE)] == ["torch_compile"]


def test_what_is_not_installed_says_what_to_type(monkeypatch, tmp_path):
    monkeypatch.setenv("TILESMITH_LAB_DIR", str(tmp_path))
    absent = absent_rivals(CUDA_TARGETS["sm_90a"])
    assert "tilesmith gemm setup tvm" in absent["tvm"]
    assert "TILESMITH_CUTLASS_DIR" in absent["cutlass"]
    monkeypatch.setenv("TILESMITH_CUTLASS_DIR", str(tmp_path))
    with pytest.raises(ArgumentError, match="holds no CUTLASS"):
        find_checkout()


def test_a_rival_of_another_package(installed, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("TILESMITH_FIND_MODE", "fast")
    out = tmp_path / "out.json"
    words = ["gemm", "-m", "24", "-n", "32", "-k", "16", "--threads", "1", "--seconds", "0.05", "--json", str(out)]
    assert run(["bench", *words, "--against", "numpy"]) == 2
    assert "'numpy' is not measured on cpu; known there: onednn, torch_compile, tvm, none" in capsys.readouterr().err
    installed()
    assert run(["bench", *words, "--against", "numpy"]) in (0, 3)
    result = json.loads(out.read_text())
    (row,) = result["results"]
    assert result["host"]["numpy"] == RIVAL.version()
    assert row["ratio"]["numpy"] == pytest.approx(row["against"]["numpy"]["time_us"] / row["time_us"])


def beside(rival: Rival) -> Bench:
    return bench(get_launchable(GEMM, target=HERE, mode="fast"), MACHINE, [rival], seconds=0.05)


class Wrong(type(RIVAL)):
    """Computes something else in one of its ways, and in both with ``all_wrong``."""

    def __init__(self, all_wrong=False):
        self.all_wrong = all_wrong

    def ways(self, setting):
        held = super().ways(setting)
        inside = held.__enter__()

        class Held:
            def __enter__(_):
                wrong = [Way(way.name, (lambda way=way: way.calls[0]() + 1.0,), way.values) for way in inside]
                return wrong if self.all_wrong else [wrong[0], inside[1]]

            def __exit__(_, *rest):
                return held.__exit__(*rest)

        return Held()


def test_a_way_with_wrong_numbers_is_not_timed():
    assert beside(Wrong()).against["numpy"].mode == "einsum"
    found = beside(Wrong(all_wrong=True))
    assert found.against == {}
    assert found.missing == {"numpy": "wrong numbers: matmul, einsum"}


class Broken(type(RIVAL)):
    """Fails when it is asked for its ways, or when one is called."""

    def __init__(self, calls):
        self.calls = calls

    @contextmanager
    def ways(self, setting):
        if not self.calls:
            raise OSError("no library\nhere")
        yield [Way("fails", (self.fail,), lambda result: result)]

    def fail(self):
        raise RuntimeError("out of luck")


@pytest.mark.parametrize(("calls", "said"), [(False, "OSError: no library"), (True, "out of luck")])
def test_one_that_raises_costs_itself_alone(calls, said):
    found = beside(Broken(calls))
    assert found.time_us
    assert said in found.missing["numpy"]


def test_a_problem_that_it_does_not_compute():
    halves = GemmSignature(24, 32, 16, dtype="bf16")
    launch = get_launchable(halves, target=HERE, mode="fast")
    found = bench(launch, MACHINE, [RIVAL], seconds=0.05)
    assert found.missing == {"numpy": "it does not compute this problem"}


def test_one_that_cannot_be_loaded_is_told_and_left_out(installed, caplog):
    installed("broken", "no_such_module_at_all:RIVAL")
    with caplog.at_level(logging.WARNING):
        assert "broken" not in rivals_of(HERE)
    assert "rival broken of no_such_module_at_all:RIVAL cannot be loaded" in caplog.text


def test_the_page_shows_this_rival():
    source = Path(__file__).with_name("numpy_rival.py").read_text()
    assert source.partition('"""\n\n')[2] in PAGE.read_text()


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "int32"])
def test_a_librarys_result_is_compared_as_it_lies(name):
    kind = np.dtype(getattr(ml_dtypes, name, name))
    value = (8 * np.random.default_rng(0).standard_normal((2, 5, 6, 3))).transpose(0, 3, 1, 2)
    if kind.kind == "i":
        value = value.astype(np.int64)
    truth = Oracle(value, value, value, 1)
    right = value.astype(kind)
    for result in (right, np.ascontiguousarray(right), right.reshape(-1)):
        assert is_close(result, truth)
    for wrong in (1.5 * np.abs(value).max(), np.nan):
        result = np.ascontiguousarray(right)
        if kind.kind != "i" or np.isfinite(wrong):
            result[1, 2, 3, 4] = wrong
            assert not is_close(result, truth)
    assert not is_close(right[:1], truth)
    assert is_close(right[:, :0], Oracle(value[:, :0], value, value, 1))
