"""Numbers of the kernels that leave out planes of 3-D filters, NaN and Inf planted: random small problems.

    python benchmarks/gpu/probes/planes.py [--count N] [--seconds S] [--seed N] [--out FILE]

Each problem is one of 3-D layers with padding along the depth: any dtype of 16 bits, dilation, epilogue. Kernels of
``wgmma_halo`` and ``wgmma_conv`` are compiled, two configs of each, all at once; then each passes the checks of a
config that may be chosen. Forward looks at its filter first, however small the problem is. Prints what is wrong, and
how many kernels left planes out. With --out, ``configs.py`` then times the 3x3x3 layers of volumetric.txt beside cuDNN.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[2] / "src"), str(HERE)]
from checks_worker import CACHE  # noqa: E402
from configs import compiled  # noqa: E402
from gpu_cases import accepted  # noqa: E402

from tilesmith.errors import ProblemError, TilesmithError  # noqa: E402
from tilesmith.measure.device_bench import DeviceBench  # noqa: E402
from tilesmith.measure.device_oracle import device_oracle  # noqa: E402
from tilesmith.problems.conv import ConvSignature  # noqa: E402
from tilesmith.problems.epilogue import Epilogue  # noqa: E402
from tilesmith.problems.samples import sample_args  # noqa: E402
from tilesmith.solvers.cuda.common import planes  # noqa: E402
from tilesmith.targets.detect_cuda import cuda_target_of  # noqa: E402

SOLVERS = ("wgmma_halo", "wgmma_conv")
# Steps of taps inside those of channels, which won on an H200 and which the estimate does not tell from the others.
_INNER = (
    "cluster_k=1 split_k=1 group_m=1 taps_inner=1 swap_mn=0 blocks_per_sm=1 mix_layers=0 store_buffers=2 slab_n=64 "
    "resident=0"
)
ALSO = (
    f"warpgroups=2 products_m=1 block_n=256 block_k=64 stages=0 pingpong=0 {_INNER} cluster_m=1",
    f"warpgroups=2 products_m=2 block_n=96 block_k=32 stages=0 pingpong=0 {_INNER} cluster_m=2",
)


def problem(rng: random.Random) -> ConvSignature:
    c, k = (rng.choice((8, 16, 32, 40, 64, 72, 96, 128, 160)) for _ in range(2))
    depth, reach = rng.randint(1, 7), rng.randint(2, 4)
    filter_ = (reach, rng.randint(1, 3), rng.randint(1, 3))
    epilogue = Epilogue(
        bias=rng.random() < 0.4, residual=rng.random() < 0.3, activation=rng.choice(("none", "relu", "gelu"))
    )
    return ConvSignature(
        (rng.randint(1, 3), depth, rng.randint(3, 20), rng.randint(3, 24), c), (k, *filter_, c),
        mode=rng.choice(("fwd", "bwd")), shared_layout="NDHWC", dtype=rng.choice(("bf16", "fp16")),
        padding=(rng.randint(1, reach), rng.randint(0, 1), rng.randint(0, 1)),
        dilation=(rng.choice((1, 1, 2)), 1, 1), epilogue=epilogue,
    )  # fmt: skip


def kernels(signature, target, rng: random.Random):
    """Two configs of each solver, those that leave planes out."""
    for candidate in accepted(signature, target):
        if candidate.name not in SOLVERS:
            continue
        solver, g = candidate.solver, candidate.geometry
        ranked = [each for each in solver.ranked(g, target) if solver.tile(g, each, target).left_out]
        for config in rng.sample(ranked, min(2, len(ranked))):
            yield candidate, config, 0.0


def timed(out: str) -> int:
    """Forward and backward data of the 3x3x3 layers, two configs of each solver beside its untuned one."""
    lines = (HERE.parents[1] / "problems" / "volumetric.txt").read_text().splitlines()
    wanted = [line for line in lines if re.search(r"--fil_d 3 -y 3 .* -F [12] ", line)]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(wanted) + "\n")
        file.flush()
        words = [file.name, "--solver", *SOLVERS, "--configs", "2", "--hopeless", "1.4", "--seconds", "0.4", "--limit",
                 "60", "--out", out, "--also", *ALSO]  # fmt: skip
        return subprocess.run([sys.executable, HERE / "configs.py", *words], check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=40.0, help="after which no problem is begun")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", help="of the times")
    args = parser.parse_args()
    planes.look_seconds = lambda _target: 0.0
    target, rng, began = cuda_target_of(0), random.Random(args.seed), time.monotonic()
    work = []
    while len(work) < args.count:
        try:
            signature = problem(rng).canonical
        except ProblemError:
            continue
        if each := list(kernels(signature, target, rng)):
            work.append((signature, each))
    sources = {
        source.text: source
        for _, each in work
        for candidate, config, _ in each
        for source in candidate.solver.draft(candidate.geometry, config, target).sources
    }
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda source: CACHE.get_or_build(source, target), sources.values()))
    print(f"{len(sources)} sources compiled in {time.monotonic() - began:.1f} s", flush=True)
    wrong = checked = looked = problems = 0
    for signature, each in work:
        if time.monotonic() - began > args.seconds:
            break
        values = sample_args(signature)
        bench = DeviceBench(
            signature, values, partial(device_oracle, signature, values, target, 0, CACHE), target, 0, CACHE
        )
        problems += 1
        for candidate, config, estimate in each:
            executable = compiled(signature, (candidate, config, estimate), target)
            checked, looked = checked + 1, looked + (len(executable.plan.run) > 1)
            try:
                verdict = bench.check(executable)
                verdict = bench.certify(executable) if verdict.ok else verdict
                message = "" if verdict.ok else verdict.message
            except TilesmithError as error:
                message = str(error)
            if message:
                wrong += 1
                print(f"WRONG {signature.key()} {candidate.name} {config}: {message}"[:500], flush=True)
    print(f"{problems} problems, {checked} kernels that leave planes out, {looked} of them look at the filter first: "
          f"{wrong} wrong, {time.monotonic() - began:.1f} s")  # fmt: skip
    failed = timed(args.out) if args.out else 0
    return 1 if wrong or not looked else failed


if __name__ == "__main__":
    sys.exit(main())
