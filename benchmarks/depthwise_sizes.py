"""What any kernel of depthwise convolutions may add to packages: stored bytes of untuned and of random configs.

python benchmarks/depthwise_sizes.py [TARGET] [--problems N] [--configs N] [--seed N] [--solver NAME] [--all]

The problems are those of ``random_depthwise.py``, each second one with an epilogue if it can have one, and each fourth
once more channels-first. Of each solver that takes a problem the untuned config and ``--configs`` random ones of its
search space are compiled. Needs NVRTC and no GPU. Exit status 1 if a kernel adds more than 10 kB; ``--all`` prints
every kernel.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import mean

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "gpu"))
from checks_worker import CACHE  # noqa: E402
from fused_sizes import EPILOGUES  # noqa: E402
from kernel_sizes import LIMIT, stored  # noqa: E402
from random_depthwise import drawn  # noqa: E402

from tilesmith.plan.records import Source  # noqa: E402
from tilesmith.problems.conv import ConvSignature  # noqa: E402
from tilesmith.solvers.cuda.depthwise.solver import DepthwiseCudaSolver  # noqa: E402
from tilesmith.solvers.cuda.depthwise_mma.solver import DepthwiseMmaSolver  # noqa: E402
from tilesmith.solvers.cuda.depthwise_planes.solver import DepthwisePlanesSolver  # noqa: E402
from tilesmith.solvers.solver import Accepted  # noqa: E402
from tilesmith.targets.names import as_target  # noqa: E402
from tilesmith.targets.target import CudaTarget  # noqa: E402
from tilesmith.tune.space import random_point  # noqa: E402

SOLVERS = {s.name: s for s in (DepthwiseCudaSolver(), DepthwiseMmaSolver(), DepthwisePlanesSolver())}

EVEN = [
    ConvSignature((16, 56, 57, 96), (96, *taps, 1), stride=stride, groups=96, mode=mode, dtype=dtype,
                  shared_layout="NHWC")
    for taps, mode, stride, dtype in (
        ((2, 2), "fwd", 1, "bf16"), ((2, 2), "wrw", 2, "fp16"), ((4, 4), "bwd", 2, "fp32"), ((6, 4), "fwd", 2, "bf16"),
        ((8, 8), "bwd", 1, "fp16"), ((10, 10), "wrw", 1, "bf16"), ((10, 10), "fwd", 1, "fp32"),
    )
]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", nargs="?", default="sm_90a:132:h200")
    parser.add_argument("--problems", type=int, default=40)
    parser.add_argument("--configs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--solver", choices=SOLVERS)
    parser.add_argument("--all", action="store_true")
    asked = parser.parse_args()
    target, rng = as_target(asked.target), random.Random(asked.seed)
    assert isinstance(target, CudaTarget)
    sources = dict[str, tuple[Source, str, str]]()
    for signature in problems(rng, asked.problems):
        for name, solver in SOLVERS.items():
            geometry = signature.geometry
            if name != (asked.solver or name) or not isinstance(solver.applicable(geometry, target), Accepted):
                continue
            space = solver.search_space(geometry, target)
            points = (random_point(space, rng) for _ in range(asked.configs))
            configs = {solver.default_config(geometry, target): None} | {p: None for p in points if p is not None}
            for config in configs:
                for source in solver.draft(geometry, config, target).sources:
                    sources.setdefault(source.symbol, (source, name, f"{config} {signature.key()}"))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        sizes = dict(zip(sources, pool.map(lambda of: size(of[0], target), sources.values()), strict=True))
    print("| solver | kernels | stored, mean | stored, largest | above 10 kB |\n|---|---|---|---|---|")
    for name in (*SOLVERS, "all"):
        found = [sizes[symbol] for symbol, (_, of, _) in sources.items() if name in (of, "all")]
        if found:
            above = sum(nbytes > LIMIT for nbytes in found)
            print(f"| {name} | {len(found)} | {mean(found):.0f} | {max(found)} | {above} |")
    for symbol, nbytes in sorted(sizes.items(), key=lambda each: -each[1]):
        if nbytes > LIMIT or asked.all:
            print(f"{nbytes} bytes: {' '.join(sources[symbol][1:])} {symbol}")
    return int(max(sizes.values()) > LIMIT)


def size(source: Source, target: CudaTarget) -> int:
    return len(stored(CACHE.get_or_build(source, target).path.read_bytes()))


def problems(rng: random.Random, count: int) -> list[ConvSignature]:
    found = {signature.canonical.key(): signature.canonical for signature in EVEN}
    while len(found) < count:
        signature = drawn(rng)
        if signature is None:
            continue
        if len(found) % 2 and signature.mode != "wrw":
            signature = replace(signature, epilogue=rng.choice(list(EPILOGUES.values())))
        if len(found) % 4 == 3:
            signature = first(signature)
        found.setdefault(signature.canonical.key(), signature.canonical)
    return list(found.values())


def first(signature: ConvSignature) -> ConvSignature:
    """The same with channels in front of pixels."""
    n, *size, c = signature.input_shape
    k, *taps, one = signature.kernel_shape
    layout = {1: "NCW", 2: "NCHW", 3: "NCDHW"}[len(size)]
    return ConvSignature(
        (n, c, *size), (k, one, *taps), groups=c, mode=signature.mode, stride=signature.stride,
        dilation=signature.dilation, padding=signature.padding, dtype=signature.dtype, epilogue=signature.epilogue,
        shared_layout=layout,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
