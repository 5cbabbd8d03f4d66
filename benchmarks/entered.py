"""Counts the files that a call enters on its way from a problem to the first launch of a kernel. Needs no GPU.

    python benchmarks/entered.py [--list]

The call is that of a bf16 GEMM which the wgmma kernel computes, with nothing in a database and nothing kept from
earlier processes: `get_launchable`, and the launch on tensors of a device. The device is the stand-in of `tests/cuda`,
which accepts launches and computes nothing. A file counts, with all of its lines, when the call enters a function of
it. Imports do not count (a call of another problem has made them before), nor what other processes do.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "tilesmith"
sys.path[:0] = [str(ROOT / "tests" / "cuda")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="name the files, and their lines")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"TILESMITH_CACHE_DIR": f"{folder}/cache", "TILESMITH_DB_PATH": f"{folder}/none.db"}
        found = entered()
    if options.list:
        for name, lines in sorted(found.items()):
            print(f"{lines:6} {name}")
    print(f"{len(found)} files, {sum(found.values())} lines")
    return 0


def entered() -> Counter[str]:
    """The lines of each file of the package that the call enters."""
    import ml_dtypes
    import numpy as np
    from fake_tensors import Tensor, install
    from stand_in import stand_in

    os.environ["TILESMITH_LIBCUDA"] = str(stand_in().path)
    from tilesmith import GemmSignature, get_launchable

    install()

    def matrices(size: int) -> list[Tensor]:
        return [Tensor(np.zeros((size, size), ml_dtypes.bfloat16)) for _ in range(2)]

    def call(size: int, arguments: list[Tensor]) -> str:
        launch = get_launchable(GemmSignature(size, size, size, dtype="bf16"), device="cuda", mode="fast")
        launch(*arguments)
        return launch.solver

    names: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            names.add(frame.f_code.co_filename)

    call(512, matrices(512))  # another problem, which loads the modules
    arguments = matrices(1024)
    sys.setprofile(note)
    try:
        solver = call(1024, arguments)
    finally:
        sys.setprofile(None)
    assert solver.startswith("wgmma_gemm"), solver
    inside = [Path(name) for name in names if Path(name).is_relative_to(PACKAGE)]
    return Counter({str(path.relative_to(PACKAGE)): len(path.read_text().splitlines()) for path in inside})


if __name__ == "__main__":
    sys.exit(main())
