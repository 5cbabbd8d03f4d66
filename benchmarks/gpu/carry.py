"""Keeps GPU results of an earlier generator for the problems whose plans have not changed since.

    python benchmarks/gpu/carry.py CHECKOUT [--l2-bytes N]

CHECKOUT is a tree, after `make setup` there, of the version that made the rows of
benchmarks/results/gpu_bench_*.json and of build/gpu-test/state.jsonl. Both versions write out the plan of every row:
the sources of its kernels, their launches and every argument, and for `gpu-bench` the untuned choice and its plan too.
Rows for which the two agree in all of it get today's generator and ``measured_by``, the one that they were measured
with; the others are left, and are measured anew by the next `make gpu-bench` or `make gpu-test`. Needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
H200_L2_BYTES = 60 << 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--l2-bytes", type=int, default=H200_L2_BYTES, help="of the card that was measured")
    options = parser.parse_args()
    benches = {path: json.loads(path.read_text()) for path in sorted((ROOT / "benchmarks/results").glob("gpu_bench_*"))}
    state = ROOT / "build" / "gpu-test" / "state.jsonl"
    cases = [json.loads(line) for line in state.read_text().splitlines()] if state.exists() else []
    rows = [row for held in benches.values() for found in held["lists"].values() for row in found] + cases
    asked = [row for row in rows if "config" in (row.get("bench") or row)]
    with ThreadPoolExecutor(2) as pool:
        answers = pool.map(lambda tree: written_out(asked, tree, options.l2_bytes), (options.checkout, ROOT))
        (before, old), (now, today) = answers
    kept = 0
    for row, then, plan in zip(asked, before, now, strict=True):
        if then == plan != "" and row.get("generator") == old:
            row.update({"measured_by": row.get("measured_by", old), "generator": today})
            kept += 1
    for path, held in benches.items():
        path.write_text(json.dumps(held, indent=1) + "\n")
    if cases:
        state.write_text("".join(json.dumps(row) + "\n" for row in cases))
    print(f"{len(rows)} rows, {len(asked)} with a plan, {kept} unchanged since {old}")
    return 0


def written_out(rows: list[dict], tree: Path, l2_bytes: int) -> tuple[list[str], str]:
    """A digest of each row's plan as the version in ``tree`` makes it ("" where it makes none), and its generator."""
    command = [str(tree / ".venv" / "bin" / "python"), str(HERE / "carry_plans.py"), str(l2_bytes)]
    done = subprocess.run(command, input=json.dumps(rows), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{tree}: {done.stderr[-2000:]}")
    found = json.loads(done.stdout)
    return found["plans"], found["generator"]


if __name__ == "__main__":
    sys.exit(main())
