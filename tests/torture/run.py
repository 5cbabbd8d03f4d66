"""``make torture``: everything that the store must bear, at full length, and the figures in a file.

python tests/torture/run.py [--short] [--json FILE] [--only NAME]...
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# By name: the script, its arguments at full length and in short.
PARTS = {
    "crowd of 8": (
        "tests/torture/crowd.py", ["--processes", "8", "--seconds", "60"], ["--processes", "8", "--seconds", "6"]
    ),
    "crowd of 64": (
        "tests/torture/crowd.py", ["--processes", "64", "--seconds", "60"], ["--processes", "24", "--seconds", "6"]
    ),
    "crowd on files": ("tests/torture/crowd.py", ["--files", "--seconds", "60"], ["--files", "--seconds", "6"]),
    "flips": ("tests/torture/flips.py", ["--every", "1"], ["--every", "31"]),
    "damages": ("tests/torture/damages.py", ["--cases", "1000"], ["--cases", "50"]),
    "faults": ("tests/torture/faults.py", [], ["--seconds", "15"]),
    "installs": ("tests/torture/installs.py", ["--times", "100"], ["--times", "12"]),
    "hostile records": ("tests/torture/hostile.py", [], ["--records", "40", "--measure", "20"]),
    "laboratory": ("tests/torture/interrupted_lab.py", ["--times", "20"], ["--times", "1"]),
    "laboratory, 13 sizes": (
        "tests/torture/interrupted_lab.py", ["--sizes", "tvm", "--times", "20", "--longest", "20"],
        ["--sizes", "tvm", "--times", "1"],
    ),
    "hostile packages": ("tests/torture/packages.py", [], ["--every", "11"]),
    "same choice": ("benchmarks/same_choice.py", ["-n", "1000"], ["-n", "20"]),
}  # fmt: skip


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--short", action="store_true")
    options.add_argument("--json", type=Path, help="add the figures to this file")
    options.add_argument("--only", action="append", choices=PARTS, help="this part alone")
    given = options.parse_args()
    failed = False
    for name in given.only or PARTS:
        script, full, short = PARTS[name]
        arguments = short if given.short else full
        begun = time.monotonic()
        done = subprocess.run(
            [sys.executable, ROOT / script, *arguments], stdout=subprocess.PIPE, text=True, check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)])},
        )  # fmt: skip
        lines = done.stdout.strip().splitlines()
        figures = json.loads(lines[-1]) if lines else {}
        failed |= done.returncode != 0 or not figures
        print(f"{name}: {'as it must be' if done.returncode == 0 and figures else 'FAILED'}")
        for key, value in figures.items():
            print(f"    {key}: {json.dumps(value)}")
        if given.json:
            command = f"{script} {' '.join(arguments)}".strip()
            keep(given.json, name, {"command": command, "took_s": round(time.monotonic() - begun, 1), **figures})
    return int(failed)


def keep(path: Path, name: str, figures: dict[str, Any]) -> None:
    document = json.loads(path.read_text()) if path.exists() else {}
    cpu = next((line.partition(":")[2].strip() for line in cpu_lines() if line.startswith("model name")), "")
    document["machine"] = (
        f"{cpu}, {os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"
    )
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    document[name] = {"date": now, "load": round(os.getloadavg()[0], 1), **figures}
    path.write_text(json.dumps(document, indent=1) + "\n")


def cpu_lines() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


if __name__ == "__main__":
    sys.exit(main())
