"""Builds the C extension in place with one compiler call, for a machine without pip's registries: no CMake, no network.

python benchmarks/gpu/build_runtime.py        needs cc, Python's headers and NumPy's
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
RUNTIME = ROOT / "src/tilesmith/runtime"


def main() -> int:
    output = RUNTIME / f"_runtime{sysconfig.get_config_var('EXT_SUFFIX')}"
    sources = [*sorted((RUNTIME / "csrc").glob("ts_*.c")), *sorted((RUNTIME / "binding").glob("*.c"))]
    command = [
        *shlex.split(os.environ.get("CC", "cc")), "-std=c11", "-D_DEFAULT_SOURCE", "-O2", "-fPIC", "-shared",
        "-fvisibility=hidden", f"-I{RUNTIME / 'csrc'}", "-isystem", sysconfig.get_paths()["include"], "-isystem",
        np.get_include(), *map(str, sources), "-o", str(output), "-lpthread", "-ldl",
    ]  # fmt: skip
    print(shlex.join(command))
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
