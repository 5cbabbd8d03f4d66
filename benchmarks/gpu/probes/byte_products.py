"""Products of fp8 or int8 of a list, beside PyTorch's: rows of calls, recorded as CUDA graphs.

    python benchmarks/gpu/probes/byte_products.py FILE.jsonl       prints what such a run has written
    python benchmarks/gpu/probes/byte_products.py gemm_int8 [--configs N] [--seconds S] [--out FILE]

For each product the untuned choice, and N configs of other tiles of its kernel, are compiled, checked against float64
on some rows (int8: every bit), and timed with the ways of ``compare.cuda_bytes``: ``torch._int_mm``, or
``torch._scaled_mm`` with the factors 1, as it is and with ``use_fast_accum``: its sums stay in the tensor cores, which
keep 13 bits of their fraction, where ours are added to fp32 sums after 128 products. Calls walk over copies of the
operands that are larger than L2 together. Prints PyTorch's time over the fastest config's and the untuned choice's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[2] / "src")]
from configs import build_all, rows_in_time  # noqa: E402
from gpu_cases import listed, predicted  # noqa: E402
from scaled import ROWS, copies_of, our_calls, row_times, tiles  # noqa: E402

from tilesmith.targets.detect_cuda import cuda_target_of  # noqa: E402
from tilesmith.targets.names import parse_target  # noqa: E402


def chosen(signature, target, count: int):
    """The kernel that is chosen untuned, and its configs: the chosen one, then the first of each of other tiles."""
    candidate, config = predicted(signature, target)
    found = tiles(signature, target, count, candidate.name)[1]
    return candidate, list(dict.fromkeys([config, *found]))[: count + 1]


def operands(signature, torch):
    """``a``, ``b``, and room for the result."""
    types = {"fp8e4m3": torch.float8_e4m3fn, "fp8e5m2": torch.float8_e5m2}
    made = []
    for name in "ab":
        shape, dtype = getattr(signature, f"{name}_shape"), getattr(signature.geometry, name).dtype
        if dtype == "int8":
            made.append(torch.randint(-128, 128, shape, device="cuda", dtype=torch.int8))
        else:
            made.append(torch.randn(shape, device="cuda").to(types[dtype]))
    result = torch.int32 if signature.geometry.c.dtype == "int32" else torch.bfloat16
    return (*made, torch.empty(signature.c_shape, device="cuda", dtype=result))


def _runs(call) -> bool:
    try:
        call()
    except (RuntimeError, NotImplementedError) as error:
        print(f"  PyTorch has no such product: {error}"[:200], flush=True)
        return False
    return True


def measured(signature, candidate, configs, target) -> dict:
    import torch

    from tilesmith.compare.cuda_bytes import byte_calls

    size = (signature.m + signature.n) * signature.k + 4 * signature.m * signature.n
    copies = copies_of(size, partial(operands, signature, torch))
    libraries = byte_calls(signature, [tensors[:2] for tensors in copies])
    calls = {name: partial(lambda ways, i: ways[i]()[0], each) for name, each in libraries.items() if _runs(each[0])}
    mine = our_calls(signature, candidate, configs, target, copies, torch)
    a, b, y = copies[0]
    truth = a[:ROWS].double() @ (b.t() if signature.trans_b else b).double()
    most, wrong = 0.0 if a.dtype == torch.int8 else 0.01, []
    for name, call in (calls | mine).items():
        y.fill_(-1 if a.dtype == torch.int8 else float("nan"))
        error = (call(0)[:ROWS].double() - truth).abs().max() / truth.abs().max()
        if not error <= most:
            wrong.append(name)
    kept = {name: call for name, call in (calls | mine).items() if name not in wrong}
    us = row_times(kept, len(copies), size, torch)
    ours = {name: us[name] for name in mine if name in us}
    theirs = {name: us[name] for name in calls if name in us}
    key, untuned = signature.key(), str(configs[0])
    return {"key": key, "solver": candidate.name, "ours": ours, "theirs": theirs, "untuned": untuned, "wrong": wrong}


def show(rows: list[dict]) -> None:
    """A line for each product, then geometric means and the least, for each way of the library."""
    ratios: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        ours, theirs = row["ours"], row["theirs"]
        m, n, k = (part.split("=")[1] for part in row["key"].split(";")[1:4])
        told = [f"{m}x{n}x{k}"] + [f"{name} wrong" for name in row["wrong"]]
        if ours and row["untuned"] in ours:
            best = min(ours.values())
            told.insert(0, f"{best:9.2f} us (untuned {ours[row['untuned']]:9.2f}) {row['solver']}")
            for name, us in theirs.items():
                ratios.setdefault(name, []).append((us / best, us / ours[row["untuned"]]))
                told.append(f"{name} {us:.2f} us: {us / best:.3f}")
        print("  ".join(told))
    for name, pairs in ratios.items():
        found = [f"{statistics.geometric_mean(each):.3f} (least {min(each):.3f})" for each in zip(*pairs, strict=True)]
        print(f"{name} / ours, {len(pairs)} products: fastest config {found[0]}, untuned {found[1]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems")
    parser.add_argument("--configs", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=60.0, help="on the device; no product is begun after")
    parser.add_argument("--target", metavar="NAME", help="compile for it, and measure nothing")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.problems.endswith(".jsonl"):
        show([json.loads(line) for line in Path(args.problems).read_text().splitlines()])
        return 0
    target = parse_target(args.target) if args.target else cuda_target_of(0)
    signatures = {s.canonical.key(): s.canonical for _, _, s in listed(args.problems)}.values()
    found = {signature: chosen(signature, target, args.configs) for signature in signatures}
    drafts = (each.solver.draft(each.geometry, config, target) for each, some in found.values() for config in some)
    build_all((source for draft in drafts for source in draft.sources), target)
    if not args.target:
        tasks = (partial(measured, signature, *each, target) for signature, each in found.items())
        show(rows_in_time(tasks, args.seconds, args.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
