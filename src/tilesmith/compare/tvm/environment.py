"""The virtual environment of TVM, whose pins clash with those of other packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tilesmith.compare.commands import follow
from tilesmith.compare.places import rivals_folder
from tilesmith.errors import ArgumentError

# NOTE: apache-tvm 0.27 asks for any apache-tvm-ffi from 0.1.14 on; from 0.1.14.post1 on MetaSchedule crashes
# (SIGSEGV in the first TuneContext).
PINS = ("apache-tvm==0.27.0.post1", "apache-tvm-ffi==0.1.14.post0", "numpy", "psutil", "cloudpickle", "xgboost-cpu")
SETUP = "tilesmith gemm setup tvm"
_READY = "ready"  # a file that is written last
Tell = Callable[[str], None]


def environment() -> Path:
    """Its folder, which need not exist."""
    return rivals_folder() / "tvm" / "environment"


def python() -> Path:
    """The interpreter of the environment."""
    return environment() / "bin" / "python"


def is_set_up() -> bool:
    """Whether the environment was made as a whole, with these pins."""
    try:
        return (environment() / _READY).read_text().split() == list(PINS)
    except OSError:
        return False


def version() -> str:
    """Of TVM; ``ArgumentError`` says what to type without one."""
    if not is_set_up():
        raise ArgumentError(f"tvm is not here; type: {SETUP}")
    return f"TVM {PINS[0].partition('==')[2]}, MetaSchedule"


def libraries() -> tuple[Path, ...]:
    """TVM's runtime, in the order of loading; that for CUDA last."""
    (site,) = (environment() / "lib").glob("python*/site-packages")
    return (
        site / "tvm_ffi" / "lib" / "libtvm_ffi.so", site / "tvm" / "lib" / "libtvm_runtime.so",
        site / "tvm" / "lib" / "libtvm_runtime_cuda.so",
    )  # fmt: skip


def set_up(seconds: float, tell: Tell, pip: Sequence[str] = ()) -> None:
    """Make the environment, in place of one that is there in part.

    Args:
        seconds: It must be done within these.
        tell: Called with lines of progress.
        pip: More arguments of ``pip install``.

    Raises:
        ArgumentError: A step fails, as without a network; the message has pip's last line.
    """
    end, place = time.monotonic() + seconds, environment()
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    steps = {
        "making a virtual environment": [sys.executable, "-m", "venv", str(place)],
        f"installing {', '.join(PINS)}": [
            str(python()), "-m", "pip", "install", "--disable-pip-version-check", "--no-input", *pip, *PINS,
        ],
        "importing TVM": [str(python()), "-c", "from tvm.s_tir import meta_schedule"],
    }  # fmt: skip
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    for name, command in steps.items():
        tell(f"TVM: {name}")
        lines: list[str] = []

        def heard(line: str, lines: list[str] = lines) -> None:
            lines.append(line)
            if line.startswith(("Collecting", "Downloading", "Installing")):
                tell(f"TVM: {line}")

        try:
            status = follow(command, end - time.monotonic(), heard, environment=clean)
        except (subprocess.TimeoutExpired, OSError) as error:
            raise ArgumentError(f"TVM's environment: {name}: {_reason(error, seconds)}") from None
        if status != 0:
            errors = [line for line in lines if "ERROR" in line] or lines[-1:] or [f"exit status {status}"]
            raise ArgumentError(f"TVM's environment: {name} fails (is there a network?): {errors[-1]}")
    (place / _READY).write_text("\n".join(PINS))
    tell(f"TVM: ready in {place}")


def _reason(error: Exception, seconds: float) -> str:
    return f"not done in {seconds:.0f} s" if isinstance(error, subprocess.TimeoutExpired) else str(error)
