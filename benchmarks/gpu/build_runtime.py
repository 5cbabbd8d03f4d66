"""Builds the C extension in place with one compiler call, for a machine without pip's registries: no CMake, no network.

python benchmarks/gpu/build_runtime.py           needs cc, Python's headers and NumPy's
python benchmarks/gpu/build_runtime.py --check   first looks for the packages that Tilesmith needs, and builds only if
                                                 a source is newer
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUNTIME = ROOT / "src/tilesmith/runtime"
PACKAGES = ("numpy", "ml_dtypes", "click", "rich", "platformdirs", "filelock", "msgspec", "torch")


def main(words: list[str]) -> int:
    check = words == ["--check"]
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if check and missing:
        print(f"{sys.executable} lacks {', '.join(missing)}: install them (pip install {' '.join(missing)}), or carry "
              "their wheels, unpack them with pip install --no-index --target FOLDER *.whl, and add FOLDER to "
              "PYTHONPATH", file=sys.stderr)  # fmt: skip
        return 2
    output = RUNTIME / f"_runtime{sysconfig.get_config_var('EXT_SUFFIX')}"
    sources = [*sorted((RUNTIME / "csrc").glob("ts_*.c")), *sorted((RUNTIME / "binding").glob("*.c"))]
    inputs = [*sources, *(RUNTIME / "csrc").glob("*.h"), *(RUNTIME / "binding").glob("*.h")]
    if check and output.exists() and output.stat().st_mtime > max(path.stat().st_mtime for path in inputs):
        return 0
    import numpy as np

    command = [
        *shlex.split(os.environ.get("CC", "cc")), "-std=c11", "-D_DEFAULT_SOURCE", "-O2", "-fPIC", "-shared",
        "-fvisibility=hidden", f"-I{RUNTIME / 'csrc'}", "-isystem", sysconfig.get_paths()["include"], "-isystem",
        np.get_include(), *map(str, sources), "-o", str(output), "-lpthread", "-ldl",
    ]  # fmt: skip
    print(shlex.join(command))
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
