"""What a call costs beside its kernel, against PyTorch's convolution in the same process.

The clock is the thread's processor time, which stands still while another process has the core.
"""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from kernels import scaled, squared

CALLS = 200
ROUNDS = 60
RATIO = 1.5


def seconds_each(functions):
    """The best time of a call of each, in rounds that take turns so that the machine's moods meet all alike."""
    best = [float("inf")] * len(functions)
    for _ in range(ROUNDS):
        for i, function in enumerate(functions):
            start = time.thread_time()
            for _ in range(CALLS):
                function()
            best[i] = min(best[i], (time.thread_time() - start) / CALLS)
    return best


@pytest.mark.parametrize("make", [scaled, squared])
def test_a_call_costs_no_more_than_pytorchs(make):
    sig, executable = make(1)
    bound = executable.bind(sig)
    x, w = np.full((1, 1, 1, 1), 2, np.float32), np.full((1, 1, 1, 1), 3, np.float32)
    t, u = torch.from_numpy(x), torch.from_numpy(w)
    prepared, torch_prepared = bound.prepare(w), bound.prepare(u)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            theirs, *ours = seconds_each(
                [
                    lambda: torch.nn.functional.conv2d(t, u),
                    lambda: bound(x, w),
                    lambda: bound(t, u),
                    lambda: prepared(x),
                    lambda: torch_prepared(t),
                ]
            )
    finally:
        torch.set_num_threads(threads)
    assert max(ours) <= RATIO * theirs, f"{[f'{s * 1e6:.2f} us' for s in ours]} against {theirs * 1e6:.2f} us"
