"""Kernels of a PyTorch program use PyTorch's threads: none is added, and none is waited for in vain."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import tilesmith
from tilesmith.runtime import _runtime
from tilesmith.torch_ops.threads import share_threads
from torch_answer import torch_answer

pytestmark = pytest.mark.needs_linux

SIGNATURE = tilesmith.ConvSignature(
    (2, 14, 15, 24), (40, 3, 3, 24), padding=1, shared_layout="NHWC", epilogue=tilesmith.Epilogue(bias=True)
)
COUNTED = """
import os, torch, tilesmith
from tilesmith.runtime import _runtime
torch.set_num_threads(3)
torch.ones(1 << 20).add_(1.0)
import tilesmith.torch_ops
signature = tilesmith.GemmSignature(m=256, n=256, k=64)
a, b = (torch.from_numpy(each) for each in signature.get_sample_args(seed=0))
launch = tilesmith.get_launchable(signature, threads=3, mode="fast")
want = a @ b
before = len(os.listdir("/proc/self/task"))
for shared in (True, False):
    if not shared:
        _runtime.lend_threads(0)
    assert torch.allclose(launch(a, b), want, atol=1e-3)
    print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.fixture
def lent():
    assert share_threads()
    yield
    _runtime.lend_threads(0)


def test_launches_add_no_threads_to_those_of_pytorch():
    """Unless they are not shared."""
    done = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.split() == ["0", "2"], done.stderr


def asked(seed):
    """Arguments and the answer."""
    arguments = SIGNATURE.get_sample_args(seed=seed)
    return arguments, np.moveaxis(torch_answer(SIGNATURE, arguments), 1, -1)


def right(launch, seed):
    arguments, answer = asked(seed)
    return np.abs(launch(*arguments) - answer).max() < 1e-3


@pytest.mark.parametrize("threads", [2, 5])
def test_results_are_right_on_lent_threads(lent, threads):
    launch = tilesmith.get_launchable(SIGNATURE, threads=threads, mode="fast")
    assert all(right(launch, seed) for seed in range(20))


def test_several_threads_may_call_at_once_and_lending_may_end_meanwhile(lent):
    launch = tilesmith.get_launchable(SIGNATURE, threads=3, mode="fast")
    with ThreadPoolExecutor(3) as callers:
        found = [callers.submit(right, launch, seed) for seed in range(60)]
        for turn in range(20):
            _runtime.lend_threads(0) if turn % 2 else share_threads()
            assert right(launch, turn)
        assert all(each.result(120) for each in found)


def test_the_child_of_a_fork_has_threads_of_its_own(lent):
    """OpenMP would wait in the child for threads that the parent alone has."""
    launch = tilesmith.get_launchable(SIGNATURE, threads=3, mode="fast")
    assert right(launch, 0)
    torch.ones(1 << 20).add_(1.0)
    arguments, answer = asked(1)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(0 if np.abs(launch(*arguments) - answer).max() < 1e-3 else 1)
    assert os.waitpid(child, 0)[1] == 0
