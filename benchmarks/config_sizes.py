"""What kernels of grouped convolutions add to packages in random configs: bytes, each stored as a package stores it.

python benchmarks/config_sizes.py [TARGET] [--solver NAME] [--problems N] [--configs N] [--seed S] [--fused]

Draws problems that the solver takes (default: mma_narrow_groups): groups of 1 to 24 channels and as many results or
others, filters of 1x3 to 7x7, steps of 1 to 3, fp32, bf16 and fp16, forward, backward data and backward weights; with
``--fused`` those with an epilogue of ``fused_sizes.py``. Each has the untuned choice and random configs. Needs NVRTC
and no GPU. Prints the largest kernels. Exit status 1 if one adds more than 10 kB.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean

sys.path.insert(0, str(Path(__file__).parent / "gpu"))
from checks_worker import CACHE
from fused_sizes import EPILOGUES
from gpu_cases import accepted
from kernel_sizes import LIMIT, stored

from tilesmith.errors import TilesmithError
from tilesmith.plan.records import Source
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.targets.names import as_target
from tilesmith.tune.space import random_point

WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24)  # channels of a group
FILTERS = ((1, 3), (1, 7), (3, 3), (3, 3), (3, 3), (5, 5), (7, 7), (2, 4))
TYPES = ("bf16", "bf16", "fp16", "fp32")
SHOWN = 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", nargs="?", default="sm_90a:132:h200")
    parser.add_argument("--solver", default="mma_narrow_groups")
    parser.add_argument("--problems", type=int, default=40, metavar="N")
    parser.add_argument("--configs", type=int, default=5, metavar="N", help="of a problem, one of them untuned")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fused", action="store_true")
    asked = parser.parse_args()
    target, rng = as_target(asked.target), random.Random(asked.seed)
    found, problems = dict[str, tuple[str, Source]](), 0
    for signature in drawn(rng, asked.fused):
        candidate = next((c for c in accepted(signature, target) if c.name.partition("@")[0] == asked.solver), None)
        if candidate is None:
            continue
        solver, geometry = candidate.solver, candidate.geometry
        space = solver.search_space(geometry, target)
        points = [random_point(space, rng) for _ in range(asked.configs - 1)]
        for config in (solver.default_config(geometry, target), *filter(None, points)):
            for source in solver.draft(geometry, config, target).sources:
                found.setdefault(source.symbol, (f"{config} {signature.key()}", source))
        problems += 1
        if problems == asked.problems:
            break
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = pool.map(lambda each: len(stored(CACHE.get_or_build(each[1], target).path.read_bytes())), found.values())
        sizes = sorted(zip(made, (name for name, _ in found.values()), strict=True), reverse=True)
    for size, name in sizes[:SHOWN]:
        print(f"{size} bytes: {name}")
    above = sum(size > LIMIT for size, _ in sizes)
    print(
        f"{len(sizes)} kernels of {problems} problems: {mean(size for size, _ in sizes):.0f} bytes, {above} above 10 kB"
    )
    return int(above > 0)


def drawn(rng: random.Random, fused: bool) -> Iterator[ConvSignature]:
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


if __name__ == "__main__":
    sys.exit(main())
