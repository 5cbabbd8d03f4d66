"""Keeps what benchmarks/gpu/sm90.py measured: a result file with its evidence, and geomeans by problem list.

    python benchmarks/gpu/summarise.py sm90.jsonl "H200, driver 580.159.04, 2026-11-20" OUT.json

``best`` is the fastest of the untuned choice and four more configs, ``default`` the untuned choice; both are generated
kernels alone. ``library`` is PyTorch's cuDNN in benchmark mode or cuBLAS, in the same process. Microseconds.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

from tilesmith.problems.driver import parse_command

PROBLEMS = Path(__file__).parents[1] / "problems"
LISTS = ("resnet50", "boo", "diffusion", "gemm_square", "gemm_llm", "volumetric", "deconv")
COMMAND = f"python3 benchmarks/gpu/sm90.py time {' '.join(LISTS)} -n 5"


def keys(name: str) -> list[str]:
    lines = (PROBLEMS / f"{name}.txt").read_text().splitlines()
    commands = [parse_command(line) for line in lines if line.strip() and not line.startswith("#")]
    return [signature.key() for command in commands for _, signature in command.signatures]


def summary(rows: dict[str, dict], wanted: list[str]) -> dict[str, object]:
    found = [rows[key] for key in wanted if key in rows]
    best = [row["library"] / row["best"] for row in found]
    return {
        "timed": len(found),
        "left_out": len(wanted) - len(found),
        "best_geomean": statistics.geometric_mean(best),
        "best_min": min(best),
        "below_0.95": sum(ratio < 0.95 for ratio in best),
        "default_geomean": statistics.geometric_mean(row["library"] / row["default"] for row in found),
        "default_over_best": statistics.geometric_mean(row["default"] / row["best"] for row in found),
        "roofline_ours": statistics.geometric_mean(row["floor"] / row["best"] for row in found),
        "roofline_library": statistics.geometric_mean(row["floor"] / row["library"] for row in found),
    }


def main(source: str, machine: str, out: str) -> int:
    rows = {}
    for line in Path(source).read_text().splitlines():
        row = json.loads(line)
        rows[row["key"]] = {
            "solver": row["solver"], "config": row["config"], "best": row["best"], "default": row["default_us"],
            "library": row["torch"], "floor": row["floor"],
        }  # fmt: skip
    data = {
        "machine": machine, "command": COMMAND, "unit": "us",
        "summary": {name: summary(rows, keys(name)) for name in LISTS}, "results": rows,
    }  # fmt: skip
    Path(out).write_text(json.dumps(data, indent=1) + "\n")
    for name, figures in data["summary"].items():
        print(name, {key: round(value, 3) for key, value in figures.items()})
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
