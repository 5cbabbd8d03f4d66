"""Groups of rows beside cuBLAS in a loop and ``torch._grouped_mm``, each recorded as a CUDA graph.

    python benchmarks/gpu/probes/groups.py [--list NAME] [--seconds S] [--out FILE]

For each problem of benchmarks/problems/NAME.txt, with even and with skewed groups: the untuned choice of ours against a
``torch.mm`` for each group that has rows, whose sizes the graph knows beforehand, and ``torch._grouped_mm``.
Numbers are compared with those of the loop. Times are of five calls in a row, and of single calls after a write of
128 MB: the median of nine, all ways interleaved. FILE gets a JSON line for each.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[2] / "src")]
from gpu_cases import listed  # noqa: E402

import tilesmith  # noqa: E402

ROUNDS, ROW, FLUSHED = 9, 5, 1 << 27


def sizes_of(kind: str, rows: int, groups: int) -> np.ndarray:
    """Rows of each group: as even as can be, or as a power of a group's random rank."""
    if kind == "even":
        return np.diff(np.arange(groups + 1) * rows // groups)
    rng = np.random.default_rng(3)
    share = rng.permutation(1.0 / np.arange(1, groups + 1) ** 0.8)
    return rng.multinomial(rows, share / share.sum())


def recorded(call, count: int) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            call()
    return graph


def timed(graphs: dict[str, torch.cuda.CUDAGraph], count: int, flushed: torch.Tensor | None) -> dict[str, float]:
    """Median microseconds of a call."""
    found = {name: [] for name in graphs}
    for _ in range(ROUNDS):
        for name, graph in graphs.items():
            events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            if flushed is not None:
                flushed.zero_()
            events[0].record()
            graph.replay()
            events[1].record()
            found[name].append(events)
    torch.cuda.synchronize()
    return {name: 1e3 * statistics.median(a.elapsed_time(b) for a, b in pairs) / count for name, pairs in found.items()}


def measured(signature, a: torch.Tensor, b: torch.Tensor, kind: str, flushed: torch.Tensor) -> dict:
    ends = np.cumsum(sizes_of(kind, signature.m, signature.groups)).astype(np.int32)
    on_device = torch.from_numpy(ends).cuda()
    launch = tilesmith.get_launchable(signature, device="cuda:0", mode="fast", external=False)
    result, other = (torch.empty(signature.c_shape, dtype=a.dtype, device="cuda") for _ in range(2))

    def loop() -> None:
        for first, end, matrix in zip([0, *ends.tolist()], ends.tolist(), b, strict=False):
            if end > first:
                torch.mm(a[first:end], matrix, out=other[first:end])

    result.fill_(float("nan"))
    calls = {"ours": lambda: launch(a, b, on_device, out=result), "loop": loop,
             "grouped_mm": lambda: torch._grouped_mm(a, b, offs=on_device)}  # fmt: skip
    for call in calls.values():
        call()
    torch.cuda.synchronize()
    error = float((result.float() - other.float()).abs().max() / other.float().abs().max())
    row = timed({name: recorded(call, ROW) for name, call in calls.items()}, ROW, None)
    single = timed({name: recorded(call, 1) for name, call in calls.items()}, 1, flushed)
    return {"key": signature.key(), "groups": kind, "config": launch.choice.config, "right": error < 0.01,
            "row_us": row, "single_us": single}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", default="gemm_grouped")
    parser.add_argument("--seconds", type=float, default=600.0, help="after which no problem is begun")
    parser.add_argument("--out", default="groups.jsonl")
    args = parser.parse_args()
    until = time.monotonic() + args.seconds
    flushed = torch.empty(FLUSHED, dtype=torch.uint8, device="cuda")
    ratios: dict[str, list[float]] = {}
    for _, _, signature in listed(args.list):
        if time.monotonic() > until:
            print("out of time", flush=True)
            break
        shapes = signature.a_shape, signature.b_shape
        a, b = (torch.randn(shape, dtype=torch.bfloat16, device="cuda") for shape in shapes)
        for kind in ("even", "skewed"):
            found = measured(signature, a, b, kind, flushed)
            with open(args.out, "a") as out:
                out.write(json.dumps(found) + "\n")
            words = []
            for way in ("row_us", "single_us"):
                us = found[way]
                over = {rival: us[rival] / us["ours"] for rival in ("loop", "grouped_mm")}
                for rival, ratio in over.items():
                    ratios.setdefault(f"{way} {rival}", []).append(ratio)
                said = ", ".join(f"{rival} {ratio:.3f}" for rival, ratio in over.items())
                words.append(f"{us['ours']:8.1f} us, {said}")
            right = "" if found["right"] else " WRONG"
            sizes = f"{signature.groups:4} groups, {signature.m:6} rows, n {signature.n:5}, k {signature.k:5} {kind:6}"
            print(f"{sizes} row {words[0]}; single {words[1]}{right}", flush=True)
        del a, b
    for name, each in ratios.items():
        mean = statistics.geometric_mean(each)
        print(f"{name} / ours: {mean:.3f} (geometric mean of {len(each)}), least {min(each):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
