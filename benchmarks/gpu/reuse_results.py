"""Keeps GPU results of an earlier generator for the problems whose plans have not changed since.

    python benchmarks/gpu/reuse_results.py CHECKOUT

CHECKOUT is a tree, after `make setup` there, of the version that made the rows of
benchmarks/results/gpu_bench_*.json and of build/gpu-test/state.jsonl. Rows whose plan, and for `gpu-bench` the plan of
whose untuned choice, is the same in both versions (`benchmarks/same_plans.py`) get today's generator and
``measured_by``, the generator that they were measured with. The next `make gpu-bench` or `make gpu-test` measures the
rest anew. Needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
from gpu_cases import TOOLS  # noqa: E402
from same_plans import RESULTS, digests_of, from_command, gpu_target  # noqa: E402

GENERATOR = "from tilesmith.solvers.generation import generator_digest; print(generator_digest('cuda'))"


def names_of(row: dict, file: str) -> list[str]:
    """How the names of a row's plans begin in ``same_plans``."""
    if "bench" not in row:  # a tool of the sanitizer runs the plan that a case of ``kernels`` runs
        part, _, case = row["name"].partition(": ")
        return [f"check {'kernels' if part in TOOLS else part}: {case} "]
    key, choice = from_command(row["command"])[row["direction"]].key(), row["bench"]
    values = " ".join(part.partition("=")[2] for part in choice["config"].split())
    return [f"{file} {key} {choice['solver']} {values}", f"untuned {gpu_target().arch} {gpu_target().cores} {key}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path)
    trees = (parser.parse_args().checkout, ROOT)
    benches = {path: json.loads(path.read_text()) for path in sorted(RESULTS.glob("gpu_bench_*"))}
    state = ROOT / "build" / "gpu-test" / "state.jsonl"
    cases = [json.loads(line) for line in state.read_text().splitlines()] if state.exists() else []
    rows = [(row, path.name) for path, held in benches.items() for found in held["lists"].values() for row in found]
    rows = [(row, file) for row, file in rows + [(row, "") for row in cases] if "config" in (row.get("bench") or row)]
    with tempfile.TemporaryDirectory() as held:
        before, after = (digests_of(tree, Path(held, str(number))) for number, tree in enumerate(trees))
    old, today = (
        subprocess.check_output([tree / ".venv/bin/python", "-c", GENERATOR], text=True, cwd=tree).strip()
        for tree in trees
    )
    kept = 0
    for row, file in rows:
        plans = [next((name for name in before if name.startswith(begin)), "") for begin in names_of(row, file)]
        if row.get("generator") == old and all(plan and before[plan] == after.get(plan) for plan in plans):
            row.update({"measured_by": row.get("measured_by", old), "generator": today})
            kept += 1
    for path, held in benches.items():
        path.write_text(json.dumps(held, indent=1) + "\n")
    if cases:
        state.write_text("".join(json.dumps(row) + "\n" for row in cases))
    print(f"{len(rows)} rows with a plan, {kept} unchanged since {old}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
