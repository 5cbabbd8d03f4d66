"""The first call of an optimized model in a new process: nothing is compiled and nothing is measured again."""

import os
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "models"))
import pytest
import remembered
import torch

from tilesmith.dispatch import hits, resolve
from tilesmith.torch_ops.compile import builder
from tilesmith.torch_ops.compile.decide import Decider
from tilesmith.torch_ops.describe import gemm_problem
from tilesmith.torch_ops.modules.decisions import is_left_to_pytorch

WORDS = ["--models", "tiny", "--rounds", "1", "--threads", "1"]


@pytest.fixture(autouse=True)
def _bytecode_of_this_run(monkeypatch):
    """In folders of their own, the first process of each test would compile thousands of PyTorch's modules."""
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", sys.pycache_prefix or "")


def test_a_remembered_model_starts_no_program_and_writes_nothing(capfd, monkeypatch):
    """Of three processes the first fills the folders, the second keeps what it found there, the last is profiled."""
    monkeypatch.setenv("TILESMITH_FIND_MODE", "hybrid")  # the default, which measures at first calls
    monkeypatch.setattr(remembered, "FILLING", 1)
    rows, raced, run = [], [], remembered.run

    def spy(model, mode, stores, *given):
        rows.append(run(model, mode, stores, *given))
        raced.append(list((stores / "tilesmith" / "races").glob("*.json")))
        return rows[-1]

    monkeypatch.setattr(remembered, "run", spy)
    assert remembered.main([*WORDS, "--modes", "tilesmith.optimize", "--profile", "9"]) == 0
    first, _, later = rows
    assert first["programs"] > 0
    assert raced[0]
    assert (later["programs"], later["files"]) == (0, 0)
    told = capfd.readouterr()
    assert "Ordered by: cumulative time" in told.err
    assert "tiny, tilesmith.optimize: first result after" in told.err
    assert "| tilesmith.optimize |" in told.out


def test_a_process_that_is_too_late_tells_where_it_is_and_costs_its_mode_alone(capfd, monkeypatch):
    monkeypatch.setattr(remembered, "FILLING", 1)
    assert remembered.main([*WORDS, "--modes", "eager", "--limit", "0.2"]) == 1
    told = capfd.readouterr()
    assert "tiny, eager: ended with 1" in told.err
    assert "most recent call first" in told.err
    assert "| eager" not in told.out
    monkeypatch.setattr(remembered, "FILLING", 0)
    assert remembered.main([*WORDS, "--modes", "eager", "--time-limit", "0"]) == 1
    told = capfd.readouterr()
    assert "no further round" in told.err
    assert "first result" not in told.err


LIGHT = """
import os, sys, traceback, torch

def loaded(*names):
    print(*[each for each in names if each in sys.modules], flush=True)

def run():
    import tilesmith
    tilesmith.optimize(torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3), torch.nn.ReLU()).eval())
    loaded("torch._dynamo", "sympy", "tilesmith.tune.session")
    from tilesmith.torch_ops.modules.decisions import is_left_to_pytorch
    x = torch.ones(1, 8, 9, 7).to(memory_format=torch.channels_last)
    activation, shape = ("none", 0.01, 0.0, 6.0), ((1,), (0,), (1,), False, (0,), 1)
    for mode, w in (("fast", torch.ones(16, 8, 1, 1)), ("hybrid", torch.ones(24, 8, 1, 1))):
        lies = [(tuple(each.shape), each.stride()) for each in (x, w)]
        print(is_left_to_pytorch(x.device, x.dtype, *lies, False, False, activation, shape, False))
        y = tilesmith.conv(x, w, mode=mode, threads=2)
        assert torch.equal(y, torch.full_like(y, 8))
        loaded("sympy", "tilesmith.solvers.table")

for _ in range(3):  # three processes that have imported PyTorch alone
    child = os.fork()
    if not child:
        try:
            run()
        except BaseException:
            traceback.print_exc()
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_what_is_remembered_is_decided_and_launched_without_solvers_and_compilers_of_pytorch(tmp_path):
    """Solvers take 0.3 s to import, sympy, which checks of PyTorch's import, as much, and TorchDynamo a second."""
    environment = os.environ | {
        "TILESMITH_CACHE_DIR": str(tmp_path / "cache"), "TILESMITH_DB_PATH": str(tmp_path / "user.db"),
        "TILESMITH_FIND_MODE": "fast", "TILESMITH_NUM_THREADS": "2",
    }  # fmt: skip
    command = [sys.executable, "-c", LIGHT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    told = done.stdout.splitlines()
    assert len(told) == 15, done.stderr
    first, second, third = (told[at : at + 5] for at in (0, 5, 10))
    assert first[0] == second[0] == third[0] == ""
    assert first[2] == first[4] == "tilesmith.solvers.table"
    assert third == ["", second[1], "", second[3], ""]


def test_a_later_decision_takes_over_what_the_estimates_chose(monkeypatch):
    """Estimating the candidates of each convolution of a ResNet-50 took more time than the rest of our work."""
    decided, decide = [], resolve.decide
    monkeypatch.setattr(resolve, "decide", lambda *given: decided.append(given) or decide(*given))

    def make():
        return gemm_problem(torch.ones(48, 31), torch.ones(31, 40))

    first, second = (Decider("cpu")(make) for _ in range(2))
    assert (len(decided), second) == (1, first)
    assert Decider("cpu")(lambda: gemm_problem(torch.ones(48, 33), torch.ones(33, 40))).solver
    assert len(decided) == 2


def test_dynamo_takes_the_decision_for_a_layer_as_a_constant():
    """It would trace the decision's own code otherwise."""

    def chosen(x):
        lies = (tuple(x.shape), x.stride()), ((4, 3), (3, 1))
        left = is_left_to_pytorch(x.device, x.dtype, *lies, False, False, ("none", 0.01, 0.0, 6.0), (), True)
        return x + 1 if left else x - 1

    x = torch.ones(2, 3)
    assert torch.equal(torch.compile(chosen, backend="eager", fullgraph=True)(x), chosen(x))


def test_a_decision_asks_for_the_filter_as_the_call_will_have_it(monkeypatch):
    """So that both find what an earlier process kept of either."""
    asked, real = [], hits.recall

    def recalled(request):
        asked.append(request.frozen)
        return real(request)

    monkeypatch.setattr(hits, "recall", recalled)
    for packed in (True, False):
        Decider("cpu", packed=packed)(lambda: gemm_problem(torch.ones(24, 33), torch.ones(33, 40)))
    monkeypatch.setenv("TILESMITH_FIND_MODE", "strict")  # whose calls have the kernels that were prepared
    Decider("cpu")(lambda: gemm_problem(torch.ones(24, 33), torch.ones(33, 40)))
    assert asked == [True, False, True]


@pytest.mark.parametrize("packed", [True, False])
def test_a_graphs_kernels_are_prepared_for_the_filter_as_the_calls_will_have_it(packed, monkeypatch):
    """So that the first call finds the kernel that was prepared."""
    asked: list[bool] = []

    def done():
        future = Future()
        future.set_result("")
        return future

    monkeypatch.setattr(builder, "get_launchable", lambda *given, **named: asked.append(named["frozen"]))
    monkeypatch.setattr(builder.ahead, "runs", lambda: True)
    monkeypatch.setattr(builder.ahead, "build_ahead", lambda request: asked.append(request.frozen) or done())
    problem = gemm_problem(torch.ones(24, 36), torch.ones(36, 40))
    monkeypatch.setattr(builder, "_jobs", {})
    builder.prepare_kernels([problem, problem], "cpu", "fast", packed)
    assert builder.wait_for_kernels(60.0)
    assert asked == [packed, packed]
