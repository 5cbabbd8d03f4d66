"""What tests need of a machine, whether it is here, and how to get it: the table behind ``conftest``'s skip hook.

A test needs what its markers name (``@pytest.mark.needs_root``), what its folder needs, and PyTorch where its file
imports it.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import levels
from tilesmith.errors import NoCompilerError
from tilesmith.measure.guard_pages import GuardedPages
from tilesmith.toolchain.compilers import find_compiler
from tilesmith.toolchain.nvrtc import find_nvrtc

TESTS = Path(__file__).parent
PREFIX = "needs_"  # of the markers


def found(find: Callable[[], object]) -> bool:
    try:
        find()
    except NoCompilerError:
        return False
    return True


def traces() -> bool:
    """Containers may forbid what strace does."""
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-qq", "-o", os.devnull, "true"], capture_output=True, check=False).returncode == 0


def emulator() -> str:
    """The program that runs those for aarch64; empty if there is none."""
    return shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64") or ""


def aarch64_libraries() -> str:
    """The folder with aarch64's ``lib``, as ``QEMU_LD_PREFIX`` names it; empty if there is none."""
    place = os.environ.get("QEMU_LD_PREFIX", "/usr/aarch64-linux-gnu")
    return place if os.path.exists(f"{place}/lib/ld-linux-aarch64.so.1") else ""


# Whether it is here, and what it is with the way to get it.
NEEDS: dict[str, tuple[Callable[[], bool], str]] = {
    "compiler": (lambda: found(find_compiler), "a C compiler: apt install gcc, or pip install ziglang"),
    "nvrtc": (lambda: found(find_nvrtc), "NVRTC: pip install 'nvidia-cuda-nvrtc>=13.0'"),
    "torch": (lambda: find_spec("torch") is not None, "PyTorch: pip install torch"),
    "zig": (lambda: find_spec("ziglang") is not None, "the ziglang wheel (400 MB): pip install ziglang"),
    "qemu": (
        lambda: bool(emulator() and aarch64_libraries()),
        "an emulator of aarch64 and its C library: apt install qemu-user-static libc6-arm64-cross",
    ),
    "onnx": (
        lambda: find_spec("onnx") is not None and find_spec("onnxscript") is not None,
        "ONNX and its exporter: pip install onnx onnxscript",
    ),
    "dask": (lambda: find_spec("distributed") is not None, "Dask: pip install distributed"),
    "linux": (lambda: sys.platform == "linux", "Linux: its /proc and its ELF files are read"),
    "users": (lambda: hasattr(os, "geteuid"), "a system with POSIX users: access lists of others are not read"),
    "root": (lambda: hasattr(os, "geteuid") and os.geteuid() == 0, "root, to give files to another user: use sudo"),
    "fifos": (lambda: hasattr(os, "mkfifo"), "a system with FIFOs, such as Linux"),
    "dev_full": (lambda: os.path.exists("/dev/full"), "/dev/full: run it on Linux"),
    "strace": (traces, "strace, and a system that lets it trace: apt install strace"),
    "guard_pages": (lambda: GuardedPages(1).seal(), "inaccessible memory pages: run it on Linux or macOS"),
    "cmake": (lambda: all(map(shutil.which, ("cmake", "pkg-config", "c++"))), "apt install cmake pkg-config g++"),
    "make": (lambda: shutil.which("make") is not None, "GNU make: apt install make"),
    "drawing": (lambda: find_spec("vl_convert") is not None, "what draws reports: pip install vl-convert-python"),
    "chromium": (
        lambda: any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
        and all(map(find_spec, ("playwright", "axe_playwright_python", "vl_convert"))),
        "Chromium, and what drives it: apt install chromium; pip install playwright axe-playwright-python",
    ),
    "wide_vectors": (
        lambda: any(level.vector_bytes == 64 for level in levels.HERE),
        "vectors of 64 bytes: a processor with AVX-512",
    ),
    "levels": (lambda: len(levels.HERE) > 1, "a processor of two levels: unset TILESMITH_CPU_LEVEL, or take a newer"),
}
FOLDERS = {
    "compare": ("compiler", "torch"),
    "cuda": ("compiler", "nvrtc"),
    "dispatch": ("compiler",),
    "docs": ("compiler", "torch"),
    "embed": ("compiler", "make"),
    "external": ("compiler", "torch"),
    "runtime": ("compiler",),
    "solvers": ("compiler", "torch"),
    "torch_ops": ("compiler", "torch"),
    "torture": ("compiler",),
    "tune": ("compiler",),
}


@cache
def is_here(name: str) -> bool:
    return NEEDS[name][0]()


def reason(names: tuple[str, ...]) -> str:
    """One sentence on the first of ``names`` that is not here; empty if all are."""
    return next((f"needs {NEEDS[name][1]}" for name in names if not is_here(name)), "")


def of_file(path: Path) -> tuple[str, ...]:
    """What every test of a file needs."""
    parts = path.relative_to(TESTS).parts
    return (*FOLDERS.get(parts[0], ()), *(("torch",) if imports_torch(path) else ()))


@cache
def imports_torch(path: Path) -> bool:
    """Whether importing a file imports PyTorch, through another file of the tests too."""
    for node in ast.parse(path.read_text()).body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            near = [folder / f"{name}.py" for folder in (path.parent, TESTS)]
            if name.split(".")[0] == "torch" or any(imports_torch(each) for each in near if each.exists()):
                return True
    return False
