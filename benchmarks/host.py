"""Host time of an eager call: ``python benchmarks/host.py [--device cuda] [--out FILE.json]``.

Problems so small that a call is almost only host time. On a CPU: a 1x1 convolution of 4x4 pixels and a small product,
one thread; each figure is the smallest of several turns, in microseconds of this thread's processor time, so that
neighbours do not count. On a GPU: a 3x3 convolution of 8x8 pixels and the same product, in bf16, channels last; wall
time of a row of calls, the smallest of several turns in which all calls take part. A row measures the host only while
the device keeps up with it: so the device's time of the same calls, replayed from a CUDA graph, stands beside it.

Nothing is measured by the calls themselves (``TILESMITH_FIND_MODE=fast``): a race may choose PyTorch's kernel, and then
the host time of PyTorch's call counts. The families of our calls are printed, and their launches and other steps.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import tilesmith
import tilesmith.torch_ops
from tilesmith.dispatch import kept_calls
from tilesmith.errors import TilesmithError
from tilesmith.torch_ops.arguments import ConvArguments, GemmArguments
from tilesmith.torch_ops.compile.builder import wait_for_kernels

TURNS, CALLS = 20, 1000
REPLAYED = 20  # calls in a graph
GPU_TURNS, GPU_CALLS = 40, 200  # the driver takes about a thousand launches before it makes the host wait
WARM = 200
BUILT_S = 120.0
_library = torch.library.Library("tilesmith_host", "DEF")
_library.define("nothing(" + str(torch.ops.tilesmith.convolution.default._schema).partition("(")[2])
for _key in ("CPU", "CUDA", "Autograd"):  # as the operator has them: a function of Python for each
    _library.impl("nothing", lambda x, *others: x, _key)
LIMITS = {"no gradients": 0.75, "gradients": 1.0}  # of tilesmith.conv over PyTorch's, on a GPU
Call = Callable[[], Any]


def microseconds(calls: dict[str, Call]) -> dict[str, float]:
    """Processor time of a call; the calls take turns."""
    best = dict.fromkeys(calls, float("inf"))
    for call in calls.values():
        for _ in range(WARM):
            call()
    for _ in range(TURNS):
        for name, call in calls.items():
            begin = time.thread_time()
            for _ in range(CALLS):
                call()
            best[name] = min(best[name], (time.thread_time() - begin) / CALLS)
    return {name: round(took * 1e6, 2) for name, took in best.items()}


def microseconds_on_gpu(calls: dict[str, Call]) -> dict[str, float]:
    """Wall time of a call; the calls take turns."""
    best: dict[str, float] = {}
    for turn in range(GPU_TURNS + 1):
        for name, call in calls.items():
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(GPU_CALLS):
                call()
            took = (time.perf_counter() - begin) / GPU_CALLS
            if turn:  # the first turn warms up
                best[name] = min(best.get(name, took), took)
        if not turn:  # kernels of gradients that a first call has begun are compiled in threads of this process
            wait_for_kernels(BUILT_S)
    torch.cuda.synchronize()
    return {name: round(took * 1e6, 2) for name, took in best.items()}


def device_microseconds(calls: dict[str, Call]) -> dict[str, float]:
    """The device's time of a call, by the replay of a graph of some; without those that cannot be captured."""
    found: dict[str, float] = {}
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for name, call in calls.items():
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                for _ in range(REPLAYED):
                    call()
        except (RuntimeError, TilesmithError):
            torch.cuda.synchronize()
            continue
        graph.replay()
        begin.record()
        for _ in range(GPU_TURNS):
            graph.replay()
        end.record()
        end.synchronize()
        found[name] = round(begin.elapsed_time(end) * 1e3 / (GPU_TURNS * REPLAYED), 2)
    return found


def kernels(x: torch.Tensor, w: torch.Tensor, a: torch.Tensor, v: torch.Tensor) -> dict[str, str]:
    """The family that runs the convolution and the product, and its launches and other steps in a call."""
    conv = ConvArguments.of([1], [w.shape[-1] // 2], [1], False, [0], 1)
    found = {"conv": conv.find(x, w, None, None, False), "gemm": GemmArguments.of().find(a, v.mT, None, None, False)}
    steps = {name: len(call.launch.plan.prepare) + len(call.launch.plan.run) for name, call in found.items()}
    return {name: f"{call.launch.solver}, {steps[name]} steps" for name, call in found.items()}


def tensors(device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Image and filter of the convolution, left and right matrix of the product."""
    if device == "cpu":
        return torch.randn(1, 8, 4, 4), torch.randn(8, 8, 1, 1), torch.randn(4, 8), torch.randn(8, 8)
    shapes = (1, 8, 8, 8), (8, 8, 3, 3), (64, 64), (64, 64)
    x, w, a, v = (torch.randn(*shape, device=device, dtype=torch.bfloat16) for shape in shapes)
    return x.to(memory_format=torch.channels_last), w.to(memory_format=torch.channels_last), a, v


def calls(x: torch.Tensor, w: torch.Tensor, a: torch.Tensor, v: torch.Tensor) -> dict[str, Call]:
    """What is timed, by name."""
    convolution, gemm = torch.ops.tilesmith.convolution.default, torch.ops.tilesmith.gemm.default
    nothing = torch.ops.tilesmith_host.nothing.default
    pad = w.shape[-1] // 2
    options = ([1], [pad], [1], False, [0], 1)
    found: dict[str, Call] = {
        "torch conv2d": lambda: functional.conv2d(x, w, padding=pad),
        "tilesmith.conv": lambda: tilesmith.conv(x, w, padding=pad),
        "operator convolution": lambda: convolution(x, w, None, None, *options),
        "torch linear": lambda: functional.linear(a, v),
        "tilesmith.gemm": lambda: tilesmith.gemm(a, v, trans_b=True),
        "operator gemm": lambda: gemm(a, v.mT, None, None),
    }
    if not torch.is_grad_enabled():
        found["an operator like it that computes nothing"] = lambda: nothing(x, w, None, None, *options)
        frozen = (*options, "none", 0.01, 0.0, 6.0, True)
        kernel = torch.ops.tilesmith.convolution_kernel
        found["operator convolution, frozen"] = lambda: convolution(x, w, None, None, *frozen)
        found["the same in a program of Inductor"] = lambda: kernel(x, w, None, None, *frozen)
    return found | modules(x, w, a, v)


def modules(x: torch.Tensor, w: torch.Tensor, a: torch.Tensor, v: torch.Tensor) -> dict[str, Call]:
    """PyTorch's modules and the same optimized: in evaluation without gradients of parameters, or in training."""
    channels, pad, training = w.shape[0], w.shape[-1] // 2, w.requires_grad
    made: dict[str, nn.Module] = {
        "Conv2d": nn.Conv2d(channels, channels, w.shape[2], padding=pad, bias=False),
        "Conv2d, bias": nn.Conv2d(channels, channels, w.shape[2], padding=pad),
        "Linear": nn.Linear(v.shape[1], v.shape[0]),
    }
    if not training:
        unit = nn.Conv2d(channels, channels, w.shape[2], padding=pad, bias=False), nn.BatchNorm2d(channels), nn.ReLU()
        made["Conv2d, BatchNorm2d, ReLU"] = nn.Sequential(*unit)
    found: dict[str, Call] = {}
    for name, module in made.items():
        module.to(x.device, x.dtype, memory_format=torch.channels_last)
        module.requires_grad_(training).train(training)
        given = a if name == "Linear" else x
        fast = tilesmith.optimize(module)
        found[f"torch {name}"] = lambda module=module, given=given: module(given)
        found[f"optimized {name}"] = lambda fast=fast, given=given: fast(given)
    return found


def steps(calls: dict[str, Call], conv: tuple[torch.Tensor, ...], product: tuple[torch.Tensor, ...]) -> dict[str, Call]:
    """The calls with their backward pass, from a gradient that is there already."""
    found: dict[str, Call] = {}
    for name, call in calls.items():
        wanted, dy = product if "linear" in name or "gemm" in name else conv, torch.ones_like(call())
        if not name.startswith(("optimized", "torch Conv2d", "torch Linear")):  # the parameters are the module's own
            found[name] = lambda call=call, wanted=wanted, dy=dy: torch.autograd.grad(call(), wanted, dy)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["TILESMITH_NUM_THREADS"] = "1"
    os.environ["TILESMITH_FIND_MODE"] = "fast"
    if arguments.device == "cpu":  # on a GPU optimized layers take this mode anyway, and leave some calls to PyTorch
        kept_calls.forget()
    measure = microseconds if arguments.device == "cpu" else microseconds_on_gpu
    x, w, a, v = given = tensors(arguments.device)
    figures: dict[str, dict[str, float]] = {}

    def add(mode: str, us: dict[str, float]) -> None:
        figures[mode] = us
        limit = f" (at most {LIMITS[mode]})" if mode in LIMITS and arguments.device == "cuda" else ""
        ratio = us["tilesmith.conv"] / us["torch conv2d"]
        print(f"tilesmith.conv over torch conv2d, {mode}: {ratio:.2f}{limit}", flush=True)

    run_by = kernels(*given)
    print("; ".join(f"tilesmith.{name}: {family}" for name, family in run_by.items()))
    with torch.no_grad():
        add("no gradients", measure(found := calls(*given)))
        on_device = device_microseconds(found) if arguments.device == "cuda" else {}
    w.requires_grad_(), v.requires_grad_()
    add("gradients", measure(calls(*given)))
    x.requires_grad_(), a.requires_grad_()
    add("with backward", measure(steps(calls(*given), (x, w), (a, v))))
    with torch.no_grad():
        found = calls(*tensors(arguments.device))
    with torch.inference_mode():
        add("inference mode", measure(found))
    if on_device:
        figures["on the device"] = on_device
    names = list(dict.fromkeys(name for each in figures.values() for name in each))
    print(f"{'us':42}" + "".join(f"{mode:>16}" for mode in figures))
    for name in names:
        print(f"{name:42}" + "".join(f"{each.get(name, float('nan')):16.2f}" for each in figures.values()))
    if arguments.out:
        device = platform.processor() or platform.machine()
        if arguments.device == "cuda":
            device = torch.cuda.get_device_name()
        machine = {"machine": device, "torch": torch.__version__, "kernels": run_by}
        arguments.out.write_text(json.dumps({**machine, "us": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
