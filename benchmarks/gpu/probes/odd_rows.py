"""Products whose rows are odd or no multiples of 16 bytes: configs of the kernels for them beside the libraries.

    python benchmarks/gpu/probes/odd_rows.py [--out FILE] [--limit S]

Runs ``configs.py`` (which checks each config and times it beside cuDNN and cuBLAS) on 1x1 convolutions of 33 to 96,
100 to 100, 127 to 128 and 17 to 33 channels, on those of 255 channels on a side as detection heads have them, and on
three odd products. FILE gets the JSON lines that ``configs.py`` prints again and ``benchmarks/fit.py`` reads.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
NHWC = "-t 1 --in_layout NHWC --out_layout NHWC --fil_layout NHWC"
# Images, channels, height, width, results, and MIOpenDriver's numbers of the directions.
LAYERS = (
    (64, 33, 56, 56, 96, (1, 2, 4)), (64, 100, 56, 56, 100, (1, 2, 4)), (64, 127, 56, 56, 128, (1, 2, 4)),
    (128, 17, 48, 32, 33, (1, 2)), (32, 256, 52, 52, 255, (1, 2)), (32, 255, 52, 52, 256, (1, 2)),
)  # fmt: skip
PRODUCTS = ((70001, 35, 61), (5003, 201, 250), (9001, 66, 35))
# Beside those with the least estimates: fewer and more warps, shorter and longer stages.
ALSO = tuple(
    f"warps={warps} stage_rows={rows} stages={stages} blocks_per_sm={blocks}"
    for warps, rows, stages, blocks in ((8, 32, 3, 1), (16, 16, 2, 1), (8, 16, 3, 1), (4, 16, 4, 2))
)


def commands() -> list[str]:
    return [
        *(f"convbfp16 -n {n} -c {c} -H {h} -W {w} -k {k} -y 1 -x 1 -F {direction} {NHWC}"
          for n, c, h, w, k, directions in LAYERS for direction in directions),
        *(f"gemmbfp16 -m {m} -n {n} -k {k}" for m, n, k in PRODUCTS),
    ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="odd_rows.jsonl")
    parser.add_argument("--limit", default="60", help="seconds on the device after which no problem is begun")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        problems = Path(folder, "odd_rows.txt")
        problems.write_text("\n".join(commands()) + "\n")
        return subprocess.run([
            sys.executable, str(HERE / "configs.py"), str(problems), "--solver", "mma_thin", "wgmma_thin", "wgmma_gemm",
            "--configs", "4", "--hopeless", "3", "--also", *ALSO, "--limit", args.limit, "--out", args.out,
        ], check=False).returncode  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
