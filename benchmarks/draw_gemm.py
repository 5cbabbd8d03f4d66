"""Draws the sizes of benchmarks/problems/gemm_odd.txt: they made no constant of a cost model and no order of a search.

python benchmarks/draw_gemm.py --seed 17 --count 50 --most 5000 > benchmarks/problems/gemm_odd.txt
"""

from __future__ import annotations

import argparse
import random


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--most", type=int, default=5000, help="the largest size; the least is 1")
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    command = f"python benchmarks/draw_gemm.py --seed {asked.seed} --count {asked.count} --most {asked.most}"
    print(f"# GEMM sizes drawn at random, bf16; never used to fit anything: {command}")
    for _ in range(asked.count):
        m, n, k = (rng.randint(1, asked.most) for _ in range(3))
        a, b = rng.randint(0, 1), rng.randint(0, 1)
        print(f"gemmbfp16 --a_h {m} --a_w {k} --b_w {n} --transA {a} --transB {b} -t 1")


if __name__ == "__main__":
    main()
