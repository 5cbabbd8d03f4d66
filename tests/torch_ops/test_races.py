"""Races against PyTorch's kernels on a CPU: one at a time, by threads and by processes, for what they were held for."""

import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import tilesmith
from tilesmith import GemmSignature
from tilesmith.dispatch.locations import open_cache
from tilesmith.targets.detect import host_target
from tilesmith.torch_ops.compile import races
from tilesmith.torch_ops.modules import computed
from tilesmith.torch_ops.modules import race as module
from tilesmith.torch_ops.modules.race import Result, results_of, run_faster

X = torch.ones(2, 3)
TARGET = host_target(1)


@pytest.fixture(autouse=True)
def cache(home, monkeypatch, tmp_path):
    """A cache of its own: the shared one has times that another worker measured a moment ago."""
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    tilesmith.forget()


@pytest.fixture
def held(monkeypatch):
    """The races that are run; each lasts until ``held.go`` is set."""
    module.forget_races()
    begun, go, count = threading.Event(), threading.Event(), []

    def slow(x, ours, pytorchs):
        count.append(torch.get_num_threads())
        begun.set()
        assert go.wait(20)
        return Result(tuple(x.shape), 2.0, 1.0)

    monkeypatch.setattr(module, "_race", slow)
    yield begun, go, count
    go.set()
    module.forget_races()


def call(layer, key="problem", config="mr=4", target=TARGET):
    choice = SimpleNamespace(solver="c_dense", config=config)
    launch = SimpleNamespace(signature=GemmSignature(2, 3, 3), choice=choice, target=target)
    return run_faster(layer, key, X, lambda: "ours", lambda: "pytorchs", lambda: launch)


def test_threads_do_not_race_at_once(held):
    begun, go, count = held
    layer, found = nn.Linear(3, 3), []
    first = threading.Thread(target=lambda: found.append(call(layer)))
    first.start()
    assert begun.wait(20)
    assert (call(layer), call(nn.Linear(3, 3), "other")) == ("ours", "ours")  # neither waits, neither races
    go.set()
    first.join(20)
    assert (found, len(count)) == (["pytorchs"], 1)
    assert (call(layer), call(nn.Linear(3, 3))) == ("pytorchs", "pytorchs")
    assert (len(count), len(results_of(layer))) == (1, 1)


def test_a_result_is_of_its_strides_and_padding(held, monkeypatch):
    """Two layers whose tensors have the same shapes are two problems."""
    monkeypatch.setattr(computed, "may_measure", lambda layer, x: True)
    _, go, count = held
    go.set()
    with torch.no_grad():
        for padding in (0, 1, 1):
            tilesmith.optimize(nn.Conv2d(4, 4, 3, padding=padding).eval())(torch.ones(1, 4, 6, 6))
    assert len(count) == 2


def test_a_result_is_of_its_number_of_threads(held):
    _, go, count = held
    go.set()
    layer, before = nn.Linear(3, 3), torch.get_num_threads()
    try:
        for threads in (1, 2, 1):
            torch.set_num_threads(threads)
            call(layer)
    finally:
        torch.set_num_threads(before)
    assert count == [1, 2]


def test_times_are_kept_for_later_processes(held):
    """``forget`` leaves what a new process would find; ``forget_races`` has it measured again."""
    _, go, count = held
    go.set()
    layer = nn.Linear(3, 3)
    assert call(layer) == "pytorchs"
    tilesmith.forget()
    assert not results_of(layer)
    assert (call(layer), len(count)) == ("pytorchs", 1)
    assert results_of(layer) == (Result((2, 3), 2.0, 1.0),)
    time.sleep(0.02)  # the clock of files is coarser
    module.forget_races()
    assert (call(layer), len(count)) == ("pytorchs", 2)


@pytest.mark.parametrize(
    "change",
    [{"config": "mr=8"}, {"target": host_target(2)}, {"key": "other"}, "version", "threads"],
    ids=["config", "target", "problem", "version", "threads"],
)
def test_kept_times_are_of_one_kernel_and_one_pytorch(held, monkeypatch, change):
    _, go, count = held
    go.set()
    call(nn.Linear(3, 3))
    tilesmith.forget()
    before = torch.get_num_threads()
    if change == "version":
        monkeypatch.setattr(torch, "__version__", "0.0")
    if change == "threads":
        torch.set_num_threads(before + 1)
    try:
        call(nn.Linear(3, 3), **(change if isinstance(change, dict) else {}))
    finally:
        torch.set_num_threads(before)
    assert len(count) == 2


def test_damaged_times_are_measured_again(held):
    _, go, count = held
    go.set()
    call(nn.Linear(3, 3))
    tilesmith.forget()
    path = max((Path(open_cache().directory) / "races").glob("*.json"), key=lambda each: each.stat().st_mtime_ns)
    path.write_text("[1.0, NaN]")
    assert (call(nn.Linear(3, 3)), len(count)) == ("pytorchs", 2)


def test_a_process_that_waited_takes_over_the_race_of_the_other(monkeypatch):
    signature, target = GemmSignature(8, 8, 8), host_target(1)
    raced = []
    monkeypatch.setattr(races, "_race", lambda *given: raced.append(given) or (1.0, 2.0))
    races._remember(signature, target, (3.0, 4.0))
    _, path = races._place(signature, target)
    os.utime(path, (1.0, 1.0))
    assert races.race(signature, target) == (1.0, 2.0)  # an old result is of another kernel
    os.utime(path, (2e10, 2e10))
    assert races.race(signature, target) == (3.0, 4.0)
    assert len(raced) == 1
