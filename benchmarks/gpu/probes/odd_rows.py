"""Products whose rows are odd or no multiples of 16 bytes: configs of the kernels for them beside the libraries.

    python benchmarks/gpu/probes/odd_rows.py [--out FILE] [--limit S] [--seconds S] [--devices N]

Runs ``configs.py`` (which checks each config and times it beside cuDNN and cuBLAS) on 1x1 convolutions of 33 to 96,
100 to 100, 127 to 128 and 17 to 33 channels, on those of 255 channels on a side as detection heads have them, and on
three odd products, dealt out among N devices (default: all that the driver shows). FILE gets the JSON lines that
``configs.py`` prints again and ``benchmarks/fit.py`` reads. In two passes, of S seconds at most each.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "src")]
from configs import summary  # noqa: E402
from irregular import dealt, run  # noqa: E402

from tilesmith.targets.detect_cuda import cuda_devices  # noqa: E402

NHWC = "-t 1 --in_layout NHWC --out_layout NHWC --fil_layout NHWC"
# Images, channels, height, width, results, and MIOpenDriver's numbers of the directions.
LAYERS = (
    (64, 33, 56, 56, 96, (1, 2, 4)), (64, 100, 56, 56, 100, (1, 2, 4)), (64, 127, 56, 56, 128, (1, 2, 4)),
    (128, 17, 48, 32, 33, (1, 2)), (32, 256, 52, 52, 255, (1, 2, 4)), (32, 255, 52, 52, 256, (1, 2)),
    (64, 512, 26, 26, 255, (1, 2)),
)  # fmt: skip
PRODUCTS = ((70001, 35, 61), (5003, 201, 250), (9001, 66, 35))
# Beside those with the least estimates: fewer and more warps, shorter and longer stages.
ALSO = tuple(
    f"warps={warps} stage_rows={rows} stages={stages} blocks_per_sm={blocks}"
    for warps, rows, stages, blocks in (
        (8, 32, 2, 1),
        (16, 16, 2, 1),
        (12, 16, 4, 1),
        (12, 16, 3, 1),
        (8, 16, 6, 1),
        (8, 16, 1, 1),
        (4, 16, 2, 1),
        (8, 16, 3, 2),
    )
) + tuple(
    f"warpgroups={groups} products_m={high} block_n={columns} block_k=64 stages=0 pingpong={turns} cluster_k=1 "
    "split_k=1 group_m=1 taps_inner=0 swap_mn=0 blocks_per_sm=1 mix_layers=0 store_buffers=2 slab_n=64 "
    f"resident={kept} cluster_m=1"
    for columns in (256, 128)
    for groups, high, turns, kept in ((2, 1, 1, 0), (1, 1, 0, 1), (2, 2, 1, 1), (2, 1, 1, 1))
)


def commands() -> list[str]:
    return [
        *(f"convbfp16 -n {n} -c {c} -H {h} -W {w} -k {k} -y 1 -x 1 -F {direction} {NHWC}"
          for n, c, h, w, k, directions in LAYERS for direction in directions),
        *(f"gemmbfp16 -m {m} -n {n} -k {k}" for m, n, k in PRODUCTS),
    ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("odd_rows.jsonl"))
    parser.add_argument("--limit", default="60", help="seconds on each device after which no problem is begun")
    parser.add_argument("--seconds", type=float, default=120.0, help="of each of two passes")
    parser.add_argument("--devices", type=int, default=0)
    args = parser.parse_args()
    devices = args.devices or len(cuda_devices())
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        problems = folder / "odd_rows.txt"
        problems.write_text("\n".join(commands()) + "\n")
        ran = []
        for solvers in (("wgmma_gemm", "mma_thin"), ("wgmma_thin",)):  # one that hangs costs its own times alone
            words = ["configs.py", str(problems), "--solver", *solvers, "--configs", "4", "--hopeless", "3",
                     "--also", *ALSO, "--limit", args.limit]  # fmt: skip
            shares = list(enumerate(dealt((solvers[0], words), folder, devices)))
            with ThreadPoolExecutor(len(shares)) as pool:
                ran += pool.map(lambda each: run(each[1], each[0], devices, folder, args.seconds), shares)
    args.out.write_text("".join(lines for _, _, lines in ran))
    print("\n".join(log for _, log, _ in ran))
    summary(args.out, True, True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
