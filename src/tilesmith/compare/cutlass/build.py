"""Compiles kernels of CUTLASS, each to a library of its own; what was compiled once is kept."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from tilesmith.compare.commands import follow
from tilesmith.compare.cutlass.checkout import Checkout, nvcc_version
from tilesmith.compare.cutlass.kernels import CutlassKernel
from tilesmith.compare.places import rivals_folder
from tilesmith.errors import shortened
from tilesmith.targets.target import CudaTarget

HOST = Path(__file__).with_name("host.cu")
# As CUTLASS's own build compiles its library.
_FLAGS = (
    "-std=c++17", "-O3", "-DNDEBUG", "-w", "--expt-relaxed-constexpr", "-DCUTLASS_ENABLE_TENSOR_CORE_MMA=1",
    "-DCUTE_USE_PACKED_TUPLE=1", "-Xcompiler=-fPIC,-fno-strict-aliasing,-fvisibility=hidden", "-shared",
    "-cudart=static",
)  # fmt: skip
LATE = "not compiled in time"
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Built:
    """Libraries by the name of their kernel; and those without one, with the reason."""

    libraries: dict[str, Path]
    failed: dict[str, str]


@dataclass(frozen=True)
class Compiler:
    """nvcc for one version of CUTLASS and one target."""

    nvcc: Path
    checkout: Checkout
    target: CudaTarget

    def command(self, definition: Path, out: Path) -> list[str]:
        """The command that makes the library of a kernel's definition."""
        arch = self.target.arch.removeprefix("sm_")
        return [
            str(self.nvcc), *_FLAGS, f"-gencode=arch=compute_{arch},code=sm_{arch}", f"-I{self.checkout.include}",
            "-include", str(definition), str(HOST), "-o", str(out),
        ]  # fmt: skip

    def place(self, kernel: CutlassKernel) -> Path:
        """Where the library of a kernel lies: a name that changes with everything that goes into it."""
        text = (
            kernel.text,
            HOST.read_text(),
            *_FLAGS,
            self.target.arch,
            nvcc_version(self.nvcc),
            self.checkout.version,
        )
        digest = hashlib.sha256("\0".join(text).encode()).hexdigest()
        return rivals_folder() / "cutlass" / f"{digest[:32]}.so"

    def build(self, kernels: Sequence[CutlassKernel], seconds: float, tell: Tell) -> Built:
        """Compile those that are not there, as many at a time as there are processors.

        Args:
            kernels: The kernels.
            seconds: After these, what is not compiled is left out; the rest is compiled when it is next asked for.
            tell: Called with lines of progress.
        """
        end = time.monotonic() + seconds
        places = {kernel.name: self.place(kernel) for kernel in kernels}
        missing = [kernel for kernel in kernels if not places[kernel.name].exists()]
        failed: dict[str, str] = {}
        if missing:
            rivals_folder().joinpath("cutlass").mkdir(parents=True, exist_ok=True, mode=0o700)
            tell(f"CUTLASS: compiling {len(missing)} of {len(kernels)} kernels, within {seconds:.0f} s")
            with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
                todo = {pool.submit(self._compile, each, places[each.name], end): each.name for each in missing}
                for count, done in enumerate(as_completed(todo), 1):
                    if reason := done.result():
                        failed[todo[done]] = reason
                    tell(f"CUTLASS: {count} of {len(missing)}: {todo[done]}{': ' + reason if reason else ''}")
        return Built({name: path for name, path in places.items() if name not in failed}, failed)

    def _compile(self, kernel: CutlassKernel, place: Path, end: float) -> str:
        """Why there is no library; empty if there is one."""
        with tempfile.TemporaryDirectory(dir=place.parent) as folder:
            definition, out = Path(folder, "kernel.h"), Path(folder, "kernel.so")
            definition.write_text(kernel.text)
            left = end - time.monotonic()
            if left <= 0:
                return LATE
            told: list[str] = []
            try:
                status = follow(self.command(definition, out), left, told.append)
            except subprocess.TimeoutExpired:
                return LATE
            except OSError as error:
                return str(error)
            if status != 0:
                return shortened(" ".join(told)) or f"nvcc ends with {status}"
            os.replace(out, place)
        return ""
