"""Bias gradients of real tensors beside PyTorch's sum: rows of calls that begin with a cold L2.

    python benchmarks/gpu/probes/channel_sums.py FILE.jsonl                      prints what such a run has written
    python benchmarks/gpu/probes/channel_sums.py [--seconds S] [--out FILE]      times each tensor in two layouts

For each tensor the untuned config and the first of each of six kinds of others are compiled, checked against float64,
and timed with ``torch.sum`` over the same axes, in turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[2] / "src")]

from tilesmith.problems.conv import ConvSignature  # noqa: E402
from tilesmith.solvers.cuda.channel_sums.solver import ChannelSumsSolver  # noqa: E402

SOLVER = ChannelSumsSolver()
TORCH = "torch"  # names of its ways begin so
TIMED = (
    (32, 64, (128, 128), "bf16"), (32, 128, (128, 64), "bf16"), (128, 512, (14, 14), "bf16"), (32, 512, (7, 7), "bf16"),
    (16, 3, (256, 256), "bf16"), (4, 48, (17, 64, 64), "fp16"), (8, 100, (60, 60), "fp32"),
    (16, 64, (128, 128), "fp32"), (8, 1000, (33, 33), "bf16"), (2, 64, (28, 28), "bf16"), (8, 12, (255, 255), "bf16"),
    (64, 37, (61, 61), "fp16"), (16, 1, (512, 512), "fp32"), (256, 2048, (7, 7), "bf16"), (64, 255, (13, 13), "fp32"),
    (1, 64, (1080, 1920), "bf16"), (128, 96, (500,), "bf16"), (64, 768, (14, 14), "fp32"),
)  # fmt: skip


def problems() -> Iterator[ConvSignature]:
    """Each tensor channels-last and channels-first."""
    for n, k, size, dtype in TIMED:
        axes, ones = "DHW"[3 - len(size) :], (1,) * len(size)
        yield ConvSignature(
            (n, *size, k), (k, *ones, 1), groups=k, mode="bgrad", dtype=dtype, shared_layout=f"N{axes}C"
        )
        yield ConvSignature(
            (n, k, *size), (k, 1, *ones), groups=k, mode="bgrad", dtype=dtype, shared_layout=f"NC{axes}"
        )


def configs(signature, target) -> list:
    """The untuned config first."""
    geometry = signature.canonical.geometry
    found = {SOLVER.default_config(geometry, target): None}
    kinds = {}
    for config in SOLVER.ranked(geometry, target):
        if config["threads"] > 128 and config["loads_ahead"] < 8:
            kinds.setdefault((config["threads"], config["loads_ahead"]), config)
    return list(found | dict.fromkeys(kinds.values()))


def measure(seconds: float, out: Path | None) -> None:
    import torch
    from checks_worker import CACHE

    from tilesmith.compare.cuda_libraries import device_tensors, on_stream
    from tilesmith.measure.device_bench import DeviceBench
    from tilesmith.measure.device_oracle import device_oracle
    from tilesmith.plan.assemble import assemble
    from tilesmith.problems.samples import sample_args
    from tilesmith.runtime.executable import Executable
    from tilesmith.targets.detect_cuda import cuda_target_of

    target = cuda_target_of(0)
    every = [each.canonical for each in problems()]
    drafts = {each: {c: SOLVER.draft(each.geometry, c, target) for c in configs(each, target)} for each in every}
    sources = {s.text: s for tried in drafts.values() for draft in tried.values() for s in draft.sources}
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda source: CACHE.get_or_build(source, target), sources.values()))
    ends = time.monotonic() + seconds
    for signature, tried in drafts.items():
        if time.monotonic() > ends:
            print("the time is over", flush=True)
            return
        values = sample_args(signature)
        oracle = partial(device_oracle, signature, values, target, 0, CACHE)
        bench = DeviceBench(signature, values, oracle, target, 0, CACHE)
        calls = {}
        for config, draft in tried.items():
            made = [CACHE.get_or_build(source, target) for source in draft.sources]
            plan = assemble(draft, signature, SOLVER.name, str(config), target, [each.digest for each in made])
            executable = Executable(plan, [next(a.path for a in made if a.digest == d) for d in plan.artifacts])
            verdict = bench.check(executable)
            if verdict.ok:
                calls[str(config)] = bench.timed.plan(executable).run
            else:
                print(f"WRONG {signature.key()} {config}: {verdict.message}", flush=True)
        with on_stream(0, bench.checker.stream.handle, False):
            row = device_tensors(signature, values, 0, bench.calls)
            tensors = [each[0] if isinstance(each, tuple | list) else each for each in row]
            axes = [axis for axis, name in enumerate(signature.output_layout) if name != "C"]
            sums = [partial(torch.sum, tensor, axes) for tensor in tensors]
            timing = bench.time(calls | {TORCH: lambda place, sums=sums: sums[place]()}, budget_s=0.25, rounds=13)
        us = {name: round(each.median_us, 2) for name, each in timing.items()}
        size = tensors[0].numel() * tensors[0].element_size()
        written = {"key": signature.key(), "us": us, "bytes": size}
        tell(written)
        if out is not None:
            with out.open("a") as file:
                file.write(json.dumps(written) + "\n")


def tell(row: dict) -> tuple[float, float] | None:
    """One line; the untuned config's gain over PyTorch's sum, and over the fastest config."""
    ours = {name: us for name, us in row["us"].items() if not name.startswith(TORCH)}
    theirs = min((us for name, us in row["us"].items() if name.startswith(TORCH)), default=float("nan"))
    if not ours:
        return None
    untuned, best = next(iter(ours.values())), min(ours.values())
    tensor = row["key"].partition("y=")[0].partition("x=")[2].partition(";")[0]
    print(
        f"{row['bytes'] / 1e6:6.1f} MB  {untuned:7.2f} us  fastest {best:7.2f}  torch {theirs:7.2f}  {tensor}",
        flush=True,
    )
    return theirs / untuned, best / untuned


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.file is None:
        measure(options.seconds, options.out)
        return
    told = [tell(json.loads(line)) for line in options.file.read_text().splitlines()]
    gains = [each[0] for each in told if each]
    print(f"{len(gains)} tensors: {statistics.geometric_mean(gains):.2f} over torch.sum, least {min(gains):.2f}")
    slower = [1 / each[1] for each in told if each]
    print(f"untuned over the fastest timed: {statistics.geometric_mean(slower):.3f}, at most {max(slower):.2f}")


if __name__ == "__main__":
    main()
