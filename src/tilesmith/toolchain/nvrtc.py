"""NVRTC, the CUDA compiler library: which one is used, and the flags it gets. No GPU and no headers are needed."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tilesmith.errors import NoCompilerError
from tilesmith.targets.target import CudaTarget
from tilesmith.toolchain.nvrtc_libraries import candidates, version_of

_COMMON = ("--std=c++17", "--device-as-default-execution-space", "--ptxas-options=-v")
# The first NVRTC that knows an arch, by compute capability.
_FIRST = {
    (8, 0): (11, 1), (8, 6): (11, 1), (8, 7): (11, 5), (8, 9): (11, 8), (9, 0): (12, 0), (10, 0): (12, 8),
    (12, 0): (12, 8),
}  # fmt: skip
_INSTALL = "pip install nvidia-cuda-nvrtc, or install a CUDA toolkit"
_WITHHELD = ("NVRTC_PREPEND_FLAGS", "NVRTC_APPEND_FLAGS")  # flags such as --use_fast_math, behind ours
_PROGRAM = Path(__file__).with_name("nvrtc_program.py")


@dataclass(frozen=True)
class Nvrtc:
    """An NVRTC library and its version."""

    library: str
    version: tuple[int, int]

    @property
    def identity(self) -> str:
        """The compiler's name in messages and records."""
        return f"nvrtc {self.version[0]}.{self.version[1]}"

    @property
    def fingerprint(self) -> str:
        """The compiler's part of an artifact's key: its file and size too, since updates keep the version's number."""
        file = os.path.realpath(self.library)
        try:
            size = os.stat(file).st_size
        except OSError:  # it is found by the loader
            size = 0
        return repr((self.version, file, size))

    def environment_of(self, process: Mapping[str, str]) -> dict[str, str]:
        """The environment of its process."""
        return {name: value for name, value in process.items() if name not in _WITHHELD}

    def flags(self, target: CudaTarget) -> tuple[str, ...]:
        """The options of one compilation. Raises ``NoCompilerError`` for an arch that this version does not know."""
        needed = _FIRST[(target.cc_major, target.cc_minor)]
        if self.version < needed:
            raise NoCompilerError(
                f"NVRTC {self.version[0]}.{self.version[1]} ({self.library}) is too old for {target.arch}, which needs "
                f"{needed[0]}.{needed[1]}; {_INSTALL}"
            )
        return (*_COMMON, f"--gpu-architecture={target.nvrtc_arch}")

    def command(self, target: CudaTarget, output: str) -> tuple[str, ...]:
        """The process that compiles the text on its stdin into the cubin, or the PTX, ``output``."""
        return (sys.executable, "-I", "-S", str(_PROGRAM), self.library, output, *self.flags(target))


def find_nvrtc() -> Nvrtc:
    """The newest of the ``cuda`` extra's wheel, the toolkit of CUDA_HOME or CUDA_PATH, and the system's.

    Raises ``NoCompilerError`` when there is none.
    """
    return _find(os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", ""))


@lru_cache(maxsize=4)
def _find(*homes: str) -> Nvrtc:
    for path in candidates(homes):
        version = version_of(path)
        if version is not None:
            return Nvrtc(path, version)
    raise NoCompilerError(f"no NVRTC, the CUDA compiler library, was found; {_INSTALL}")
