"""The first call of an optimized model in a new process: nothing is compiled and nothing is measured again."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "models"))
import pytest
import remembered
import torch

from tilesmith.dispatch import resolve
from tilesmith.torch_ops.compile.decide import Decider
from tilesmith.torch_ops.describe import gemm_problem
from tilesmith.torch_ops.modules.decisions import is_left_to_pytorch

OPTIONS = argparse.Namespace(batch=1, threads=1, device="cpu", dtype="fp32", limit=300.0)


@pytest.fixture(autouse=True)
def _bytecode_of_this_run(monkeypatch):
    """In folders of their own, the first process of each test would compile thousands of PyTorch's modules."""
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", sys.pycache_prefix or "")


def test_a_remembered_model_starts_no_program_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TILESMITH_FIND_MODE", "hybrid")  # the default, which measures at first calls
    first = remembered.run("tiny", "tilesmith.optimize", tmp_path, OPTIONS)
    assert first["programs"] > 0
    assert list((tmp_path / "tilesmith" / "races").glob("*.json"))
    remembered.run("tiny", "tilesmith.optimize", tmp_path, OPTIONS)
    later = remembered.run("tiny", "tilesmith.optimize", tmp_path, OPTIONS)
    assert (later["programs"], later["files"]) == (0, 0)


def test_a_process_that_is_too_late_tells_where_it_is_and_costs_its_mode_alone(capfd, monkeypatch):
    monkeypatch.setattr(remembered, "FILLING", 1)
    words = ["--models", "tiny", "--modes", "eager", "--rounds", "1", "--threads", "1"]
    assert remembered.main([*words, "--limit", "0.2"]) == 1
    told = capfd.readouterr()
    assert "tiny, eager: ended with 1" in told.err
    assert "most recent call first" in told.err
    assert "| eager" not in told.out
    assert remembered.main([*words, "--time-limit", "0"]) == 1
    assert "no further round" in capfd.readouterr().err
    assert remembered.main([*words, "--profile", "9"]) == 0
    told = capfd.readouterr()
    assert "Ordered by: cumulative time" in told.err
    assert "tiny, eager: first result after" in told.err
    assert "| eager |" in told.out


def test_optimizing_a_model_imports_no_compiler_of_pytorch():
    """TorchDynamo takes a second to import, and so does what searches."""
    code = (
        "import sys, torch, tilesmith\n"
        "model = tilesmith.optimize(torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3), torch.nn.ReLU()).eval())\n"
        "print(*[each for each in ('torch._dynamo', 'sympy', 'tilesmith.tune.session') if each in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


ONE_CONVOLUTION = """
import sys, torch, tilesmith
from tilesmith.torch_ops.modules.decisions import is_left_to_pytorch
x, w = torch.ones(1, 8, 9, 7).to(memory_format=torch.channels_last), torch.ones(16, 8, 1, 1)
lies = [(tuple(each.shape), each.stride()) for each in (x, w)]
activation, shape = ("none", 0.01, 0.0, 6.0), ((1,), (0,), (1,), False, (0,), 1)
left = is_left_to_pytorch(x.device, x.dtype, *lies, False, False, activation, shape, False)
y = tilesmith.conv(x, w, mode=sys.argv[1], threads=2)
assert torch.equal(y, torch.full_like(y, 8))
print(left, *[each for each in ("sympy", "tilesmith.solvers.table") if each in sys.modules])
"""


@pytest.mark.parametrize("mode", ["fast", "hybrid"])
def test_what_is_remembered_is_decided_and_launched_without_the_solvers(tmp_path, mode):
    """They take 0.3 s to import, and sympy, which checks of PyTorch's import, as much."""
    environment = os.environ | {
        "TILESMITH_CACHE_DIR": str(tmp_path / "cache"), "TILESMITH_DB_PATH": str(tmp_path / "user.db"),
        "TILESMITH_FIND_MODE": "fast", "TILESMITH_NUM_THREADS": "2",
    }  # fmt: skip
    command = [sys.executable, "-c", ONE_CONVOLUTION, mode]
    runs = [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
        for _ in range(3)
    ]
    assert runs[0][1:] == ["tilesmith.solvers.table"]
    assert runs[2] == runs[1][:1]


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
