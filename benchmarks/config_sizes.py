"""What kernels of convolutions in groups add to packages in random configs: bytes, each stored as a package stores it.

python benchmarks/config_sizes.py [groups|depthwise] [TARGET] [--problems N] [--configs N] [--seed S] [--fused] [--all]

*groups*: groups of 1 to 24 channels and as many results or others, filters of 1x3 to 7x7, steps of 1 to 3, fp32, bf16
and fp16, by ``mma_narrow_groups``. *depthwise*: the problems of ``random_depthwise.py``, each fourth once more channels
first, by the three depthwise solvers. All directions; with ``--fused`` the problems have an epilogue of
``fused_sizes.py`` where they can have one. The untuned config and random ones of each search space are compiled. Needs
NVRTC and no GPU. Prints a line for each solver and the kernels that add more than 10 kB, or ``--all``; exit status 1 if
one does.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import mean

sys.path.insert(0, str(Path(__file__).parent / "gpu"))
from checks_worker import CACHE
from fused_sizes import EPILOGUES
from gpu_cases import accepted
from kernel_sizes import LIMIT, stored
from random_depthwise import drawn as drawn_depthwise

from tilesmith.errors import TilesmithError
from tilesmith.plan.records import Source
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.targets.names import as_target
from tilesmith.targets.target import CudaTarget
from tilesmith.tune.space import random_point

SOLVERS = {"groups": ("mma_narrow_groups",), "depthwise": ("cuda_depthwise", "mma_depthwise", "cuda_depthwise_planes")}
WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24)  # channels of a group
FILTERS = ((1, 3), (1, 7), (3, 3), (3, 3), (3, 3), (5, 5), (7, 7), (2, 4))
TYPES = ("bf16", "bf16", "fp16", "fp32")
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
    parser.add_argument("kind", nargs="?", choices=SOLVERS, default="groups")
    parser.add_argument("target", nargs="?", default="sm_90a:132:h200")
    parser.add_argument("--problems", type=int, default=40, metavar="N")
    parser.add_argument(
        "--configs", type=int, default=5, metavar="N", help="of a problem and solver, one of them untuned"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fused", action="store_true")
    parser.add_argument("--all", action="store_true")
    asked = parser.parse_args()
    target, rng = as_target(asked.target), random.Random(asked.seed)
    assert isinstance(target, CudaTarget)
    found = dict[str, tuple[str, str, Source]]()
    problems = groups(rng, asked.fused) if asked.kind == "groups" else depthwise(rng, asked.fused)
    for signature in islice(problems, asked.problems):
        for candidate in accepted(signature, target):
            if candidate.name not in SOLVERS[asked.kind]:
                continue
            solver, geometry = candidate.solver, candidate.geometry
            space = solver.search_space(geometry, target)
            points = [random_point(space, rng) for _ in range(asked.configs - 1)]
            for config in (solver.default_config(geometry, target), *filter(None, points)):
                for source in solver.draft(geometry, config, target).sources:
                    found.setdefault(source.symbol, (candidate.name, f"{config} {signature.key()}", source))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = pool.map(lambda each: len(stored(CACHE.get_or_build(each[2], target).path.read_bytes())), found.values())
        sizes = sorted(zip(made, ((solver, name) for solver, name, _ in found.values()), strict=True), reverse=True)
    print("| solver | kernels | stored, mean | stored, largest | above 10 kB |\n|---|---|---|---|---|")
    for solver in SOLVERS[asked.kind]:
        of = [size for size, (name, _) in sizes if name == solver]
        if of:
            print(f"| {solver} | {len(of)} | {mean(of):.0f} | {max(of)} | {sum(size > LIMIT for size in of)} |")
    for size, (solver, name) in sizes:
        if size > LIMIT or asked.all:
            print(f"{size} bytes: {solver} {name}")
    return int(sizes[0][0] > LIMIT)


def groups(rng: random.Random, fused: bool) -> Iterator[ConvSignature]:
    """Grouped convolutions without end."""
    while True:
        inputs, outputs = rng.choice(WIDTHS), rng.choice(WIDTHS)
        outputs = rng.choice((inputs, inputs, outputs))
        groups, size = rng.choice((4, 8, 16, 32)), (rng.choice((14, 28, 45)), rng.choice((14, 28, 56)))
        r, s = rng.choice(FILTERS)
        epilogue = rng.choice(list(EPILOGUES.values())) if fused else Epilogue()
        try:
            yield ConvSignature(
                (8, *size, groups * inputs), (groups * outputs, r, s, inputs), mode=rng.choice(("fwd", "bwd", "wrw")),
                groups=groups, dtype=rng.choice(TYPES), shared_layout="NHWC", stride=rng.choice((1, 1, 2, 3)),
                padding=(r // 2, s // 2), epilogue=epilogue,
            ).canonical  # fmt: skip
        except TilesmithError:  # such as gradients of weights with an activation
            continue


def depthwise(rng: random.Random, fused: bool) -> Iterator[ConvSignature]:
    """Depthwise convolutions without end, those with filters of even sizes first."""
    for signature in EVEN:
        yield signature.canonical
    while True:
        signature = drawn_depthwise(rng)
        if signature is None:
            continue
        if fused and signature.mode != "wrw":
            signature = replace(signature, epilogue=rng.choice(list(EPILOGUES.values())))
        yield signature.canonical
        if rng.randrange(4) == 0:
            yield channels_first(signature).canonical


def channels_first(signature: ConvSignature) -> ConvSignature:
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
