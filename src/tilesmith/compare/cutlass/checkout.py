"""Where CUTLASS lies: a checkout that the user names, or the wheel ``nvidia-cutlass``; and the compiler for it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from tilesmith import env
from tilesmith.errors import ArgumentError

INSTALL = "install it: pip install --no-deps nvidia-cutlass (or name a checkout with TILESMITH_CUTLASS_DIR)"
NVCC = "CUTLASS is compiled by nvcc, which is not on PATH; install the CUDA toolkit"
_COMPILER_S = 30.0


@dataclass(frozen=True)
class Checkout:
    """One version of CUTLASS.

    Args:
        include: The folder of its headers.
        python: The folder that holds the Python package ``cutlass_library``.
        version: Such as ``4.2.0``.
    """

    include: Path
    python: Path
    version: str


def find_checkout() -> Checkout | None:
    """The checkout that TILESMITH_CUTLASS_DIR names, else the installed wheel; None without either.

    Raises:
        ArgumentError: The named folder holds no CUTLASS.
    """
    named = env.CUTLASS_DIR.get()
    if named is not None:
        found = _checkout(named / "include", named / "python")
        if found is None:
            raise ArgumentError(
                f"TILESMITH_CUTLASS_DIR={str(named)!r} holds no CUTLASS: no include/cutlass/version.h, or no "
                "python/cutlass_library"
            )
        return found
    spec = find_spec("cutlass_library")
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).parent
    return _checkout(package / "source" / "include", package.parent)


def _checkout(include: Path, python: Path) -> Checkout | None:
    try:
        text = (include / "cutlass" / "version.h").read_text()
    except OSError:
        return None
    numbers = [re.search(rf"#define CUTLASS_{part}\s+(\d+)", text) for part in ("MAJOR", "MINOR", "PATCH")]
    if not all(numbers) or not (python / "cutlass_library" / "generator.py").is_file():
        return None
    return Checkout(include, python, ".".join(number[1] for number in numbers if number))


def find_nvcc() -> Path | None:
    """nvcc on PATH, in CUDA_HOME, or in /usr/local/cuda."""
    for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        named = shutil.which("nvcc") or (shutil.which("nvcc", path=os.path.join(home, "bin")) if home else None)
        if named:
            return Path(named)
    return None


@lru_cache(maxsize=4)
def nvcc_version(nvcc: Path) -> str:
    """Such as ``13.0``; ``ArgumentError`` if it does not say."""
    try:
        told = subprocess.run(
            [nvcc, "--version"], capture_output=True, text=True, timeout=_COMPILER_S, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise ArgumentError(f"{nvcc} --version fails: {error}") from None
    found = re.search(r"release (\d+\.\d+)", told)
    if found is None:
        raise ArgumentError(f"{nvcc} --version names no release")
    return found[1]
