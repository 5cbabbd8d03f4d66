"""What an installed wheel must do where there is nothing but a Python: no compiler, no checkout, no network.

PYTHON smoke.py PACKAGES   runs it; PACKAGES holds a kernel package with the products below, for this machine
"""

import os
import subprocess
import sys
import tempfile
from importlib.metadata import entry_points, version
from pathlib import Path


def main() -> None:
    home = tempfile.mkdtemp()
    for name in [name for name in os.environ if name.startswith("TILESMITH_")]:
        del os.environ[name]
    os.environ.update(
        TILESMITH_CACHE_DIR=f"{home}/cache", TILESMITH_DB_PATH=f"{home}/tilesmith.db", TILESMITH_NUM_THREADS="1",
        TILESMITH_PACKAGE_PATH=sys.argv[1], PATH=home, TILESMITH_FIND_MODE="fast", TILESMITH_PACKAGE_NEAREST="1",
    )  # fmt: skip
    if os.uname().machine == "x86_64":
        os.environ["TILESMITH_CPU_LEVEL"] = "x86_64-v2"
    import numpy as np

    import tilesmith
    from tilesmith.errors import NoCompilerError
    from tilesmith.runtime import _runtime

    place = Path(tilesmith.__file__).parent
    assert tilesmith.__version__ == version("tilesmith"), (tilesmith.__version__, version("tilesmith"))
    for name in ("runtime/csrc/tilesmith_runtime.h", "codegen/cuda/mma.cuh", "package/embed/templates/sample.c.in"):
        assert (place / name).is_file(), name
    assert [each.name for each in entry_points(group="console_scripts") if each.value == "tilesmith.__main__:main"]

    # From the package: no compiler is needed, and the numbers are right.
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((16, 24)).astype(np.float32), rng.standard_normal((24, 8)).astype(np.float32)
    product = tilesmith.gemm(a, b)
    assert np.allclose(product, a.astype(np.float64) @ b, atol=1e-4), product
    x, w = rng.standard_normal((1, 4, 9, 9)).astype(np.float32), rng.standard_normal((8, 4, 3, 3)).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), axis=(2, 3))
    assert np.allclose(tilesmith.conv(x, w), np.einsum("nchwyx,kcyx->nkhw", windows, w), atol=1e-4)

    # What is not in the package needs a compiler, and the error says how to get one.
    told = ""
    try:
        tilesmith.gemm(a, b, alpha=0.5)
    except NoCompilerError as error:
        told = str(error)
    assert "pip install ziglang" in told, "a kernel was built without a compiler"

    for words in (["--version"], ["parse", *"conv -n 1 -c 4 -H 9 -W 9 -k 8 -y 3 -x 3 -F 1".split()]):
        done = subprocess.run(
            [*sys.argv[2:], "-m", "tilesmith", *words], capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip(), words
    print(f"{sys.version.split()[0]} on {os.uname().machine}: {Path(_runtime.__file__).name}, NumPy {np.__version__}")


main()
