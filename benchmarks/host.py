"""Host time of an eager call: ``python benchmarks/host.py [--out FILE.json]``.

A 1x1 convolution of 4x4 pixels and a small product, one thread: so a call is almost only host time. Each figure is the
smallest of several turns, in microseconds of this thread's processor time, so that neighbours do not count.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

import tilesmith
import tilesmith.torch_ops

TURNS, CALLS = 7, 3000


def microseconds(call: Callable[[], Any]) -> float:
    """Processor time of one call."""
    for _ in range(200):
        call()
    best = float("inf")
    for _ in range(TURNS):
        begin = time.thread_time()
        for _ in range(CALLS):
            call()
        best = min(best, (time.thread_time() - begin) / CALLS)
    return round(best * 1e6, 2)


def calls(w: torch.Tensor, v: torch.Tensor) -> dict[str, Callable[[], Any]]:
    """What is timed, by name; ``w`` is a filter and ``v`` a matrix."""
    x, a = torch.randn(1, 8, 4, 4), torch.randn(4, 8)
    convolution, gemm = torch.ops.tilesmith.convolution.default, torch.ops.tilesmith.gemm.default
    options = ([1], [0], [1], False, [0], 1)
    found = {
        "torch conv2d": lambda: functional.conv2d(x, w), "tilesmith.conv": lambda: tilesmith.conv(x, w),
        "operator convolution": lambda: convolution(x, w, None, None, *options),
        "torch linear": lambda: functional.linear(a, v),
        "tilesmith.gemm": lambda: tilesmith.gemm(a, v, trans_b=True),
        "operator gemm": lambda: gemm(a, v.mT, None, None),
    }  # fmt: skip
    if not torch.is_grad_enabled():
        found["operator convolution, frozen"] = lambda: convolution(
            x, w, None, None, *options, "none", 0.01, 0.0, 6.0, True
        )
    return found


def step(name: str, call: Callable[[], Any]) -> Callable[[], None]:
    """The call with its backward pass."""
    return lambda: call().sum().backward()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    w, v = torch.randn(8, 8, 1, 1), torch.randn(8, 8)
    figures: dict[str, dict[str, float]] = {}
    with torch.inference_mode():
        figures["inference mode"] = {name: microseconds(call) for name, call in calls(w, v).items()}
    with torch.no_grad():
        figures["no gradients"] = {name: microseconds(call) for name, call in calls(w, v).items()}
    w.requires_grad_(), v.requires_grad_()
    figures["gradients"] = {name: microseconds(call) for name, call in calls(w, v).items()}
    figures["with backward"] = {name: microseconds(step(name, call)) for name, call in calls(w, v).items()}
    names = list(dict.fromkeys(name for each in figures.values() for name in each))
    print(f"{'us':30}" + "".join(f"{mode:>16}" for mode in figures))
    for name in names:
        print(f"{name:30}" + "".join(f"{each.get(name, float('nan')):16.2f}" for each in figures.values()))
    if arguments.out:
        machine = {"machine": platform.processor() or platform.machine(), "torch": torch.__version__}
        arguments.out.write_text(json.dumps({**machine, "us": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
