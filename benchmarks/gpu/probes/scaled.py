"""Scaled fp8 products of a list's sizes, beside PyTorch's: rows of calls, recorded as CUDA graphs.

    python benchmarks/gpu/probes/scaled.py FILE.jsonl       prints what such a run has written
    python benchmarks/gpu/probes/scaled.py gemm_fp8 [--kinds 1x128 128x128] [--configs N] [--seconds S] [--out FILE]

For each size the untuned config and N others of other tiles are compiled, checked against float64 on some rows, and
timed with ``torch._scaled_mm`` (the same factors; and one factor for each operand, which is less work) and
``torch.mm`` of bf16 operands. Calls walk over copies of the operands that are larger than L2 together.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[2] / "src")]
from configs import build_all, compiled, rows_in_time  # noqa: E402
from gpu_cases import accepted, listed  # noqa: E402

from tilesmith.problems.gemm import GemmSignature  # noqa: E402
from tilesmith.problems.geometry import SCALE_BLOCKS, SCALE_K  # noqa: E402
from tilesmith.targets.detect_cuda import cuda_target_of  # noqa: E402

ROUNDS, ROWS, MOST_COPIES, CACHED_BYTES = 5, 64, 6, 160 << 20
LESS = "scaled_mm, one factor"  # it does not count as a rival of factors of blocks


def tiles(signature, target, count: int, solver: str = "wgmma_gemm"):
    """The solver, and the untuned config with the first of each of ``count`` other tiles."""
    candidate = next(c for c in accepted(signature, target) if c.name == solver)
    found = {}
    for config in candidate.solver.ranked(candidate.geometry, target):
        names = ("warpgroups", "products_m", "block_n", "swap_mn", "cluster_m")
        tile = (*(config[name] for name in names), config["split_k"] > 1, config["cluster_k"] > 1)
        found.setdefault(tile, config)
    return candidate, list(found.values())[: count + 1]


def operands(signature, torch):
    """``a``, ``b`` stored n x k, their factors, and room for the result."""
    made = []
    for name in "ab":
        made.append(torch.randn(getattr(signature, f"{name}_shape"), device="cuda").to(torch.float8_e4m3fn))
    for name in "ab":
        shape, steps = signature.scale_layout(name)
        size = sum((n - 1) * step for n, step in zip(shape, steps, strict=True)) + 1
        made.append(torch.exp(0.3 * torch.randn(size, device="cuda")).as_strided(shape, steps))
    return (*made, torch.empty(signature.c_shape, device="cuda", dtype=torch.bfloat16))


def wide(matrix, factors, kind: str):
    """The numbers that rows x k stand for, in float64."""
    if kind in SCALE_BLOCKS:
        rows, k = matrix.shape
        factors = factors.double().repeat_interleave(SCALE_BLOCKS[kind], 0)[:rows]
        factors = factors.repeat_interleave(SCALE_K, 1)[:, :k]
    return matrix.double() * factors


def ways(signature, copies, torch) -> dict[str, Callable]:
    one = torch.ones((), device="cuda")
    turned = [(of_a, of_b.t()) if of_a.dim() > 1 else (of_a[0], of_b[0]) for _, _, of_a, of_b, _ in copies]

    def scaled(i, factors=None):
        a, b, *_ = copies[i]
        return torch._scaled_mm(a, b.t(), *(factors or turned[i]), out_dtype=torch.bfloat16)

    found: dict[str, Callable] = {"scaled_mm": scaled, LESS: lambda i: scaled(i, (one, one))}
    if signature.m * signature.n * signature.k < 3e11:
        bf16 = [(a.bfloat16(), b.bfloat16()) for a, b, *_ in copies]
        found["mm_bf16"] = lambda i: torch.mm(bf16[i][0], bf16[i][1].t())
    return found


def our_calls(signature, candidate, configs, target, copies, torch) -> dict[str, Callable]:
    """By config, the call with the operands of a copy, the result last."""
    workspace = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")

    def call(executable, i):
        addresses = [tensor.data_ptr() for tensor in copies[i]]
        executable.run_on(0, torch.cuda.current_stream().cuda_stream, addresses, 0, workspace.data_ptr())
        return copies[i][-1]

    return {str(c): partial(call, compiled(signature, (candidate, c, 0.0), target)) for c in configs}


def row_times(calls: dict[str, Callable], copies: int, size: int, torch) -> dict[str, float]:
    """Microseconds of each call in rows that walk over the copies, recorded as graphs, which are replayed in turns."""
    row = copies * max(1, (12 if size < 40 << 20 else 4) // copies)
    graphs = {}
    for name, call in calls.items():
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for i in range(row):
                    call(i % copies)
            graphs[name] = graph
        except RuntimeError as error:
            print(f"  {name}: {error}"[:200], flush=True)
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for turn in range(ROUNDS + 1):
        for name, graph in graphs.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            if turn:
                times[name].append(1e3 * begin.elapsed_time(end) / row)
    return {name: round(statistics.median(found), 3) for name, found in times.items()}


def copies_of(size: int, make: Callable) -> list:
    """What ``make`` makes, so often that together they are larger than L2."""
    return [make() for _ in range(max(1, min(MOST_COPIES, CACHED_BYTES // size + 1)))]


def measured(signature, candidate, configs, target) -> dict:
    import torch

    size = signature.m * signature.k + signature.n * signature.k + 2 * signature.m * signature.n
    copies = copies_of(size, partial(operands, signature, torch))
    calls = ways(signature, copies, torch) | our_calls(signature, candidate, configs, target, copies, torch)
    a, b, of_a, of_b, y = copies[0]
    some = [of_a[:ROWS] if signature.a_scale == "1x128" else of_a, of_b]
    truth = wide(a[:ROWS], some[0], signature.a_scale) @ wide(b, some[1], signature.b_scale).T
    wrong = []
    for name, call in list(calls.items()):
        try:
            y.fill_(float("nan"))
            error = (call(0)[:ROWS].double() - truth).abs().max() / truth.abs().max()
        except RuntimeError as refused:
            print(f"  {name}: {refused}"[:200], flush=True)
            del calls[name]
            continue
        if name not in (LESS, "mm_bf16") and not error < 0.01:
            wrong.append(name)
            del calls[name]
    us = row_times(calls, len(copies), size, torch)
    return {"key": signature.key(), "us": us, "untuned": str(configs[0]), "wrong": wrong}


def show(rows: list[dict]) -> None:
    ratios = []
    for row in rows:
        mine = {name: us for name, us in row["us"].items() if "=" in name}
        theirs = {name: us for name, us in row["us"].items() if "=" not in name and name != LESS}
        best, rival = min(mine, key=mine.__getitem__), min(theirs, key=theirs.__getitem__)
        ratios.append((theirs[rival] / mine[best], theirs[rival] / mine[row["untuned"]]))
        m, n, k = (part.split("=")[1] for part in row["key"].split(";")[1:4])
        print(
            f"{ratios[-1][0]:6.3f} {ratios[-1][1]:6.3f} {mine[best]:9.2f} us, {rival} {theirs[rival]:9.2f}  {m}x{n}x{k}"
        )
    if ratios:
        means = [statistics.geometric_mean(column) for column in zip(*ratios, strict=True)]
        least = [min(column) for column in zip(*ratios, strict=True)]
        found = [f"{mean:.3f} (least {worst:.3f})" for mean, worst in zip(means, least, strict=True)]
        print(f"{len(ratios)} sizes: fastest {found[0]}, untuned {found[1]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems")
    parser.add_argument("--kinds", nargs=2, default=["1x128", "128x128"])
    parser.add_argument("--configs", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=60.0, help="on the device; no size is begun after")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.problems.endswith(".jsonl"):
        show([json.loads(line) for line in Path(args.problems).read_text().splitlines()])
        return 0
    target = cuda_target_of(0)
    options = {"dtype": "fp8e4m3", "c_dtype": "bf16", "a_scale": args.kinds[0], "b_scale": args.kinds[1]}
    sizes = dict.fromkeys((s.m, s.n, s.k) for _, _, s in listed(args.problems))
    signatures = [GemmSignature(*size, trans_b=True, **options).canonical for size in sizes]
    chosen = {signature: tiles(signature, target, args.configs) for signature in signatures}
    drafts = (each.solver.draft(each.geometry, config, target) for each, some in chosen.values() for config in some)
    build_all((source for draft in drafts for source in draft.sources), target)
    tasks = (partial(measured, signature, *each, target) for signature, each in chosen.items())
    show(rows_in_time(tasks, args.seconds, args.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
