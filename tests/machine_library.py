"""The C runtime's detection of machines as a shared library, and ``ts-query``; each is built once a process."""

from __future__ import annotations

import atexit
import ctypes
import re
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

import tilesmith.runtime
from tilesmith.toolchain.compilers import find_compiler

CSRC = Path(tilesmith.runtime.__file__).parent / "csrc"
CARD, NAME = 49, 80  # bytes, from ts_machine.h
NONE, NEAREST, RUNS, EXACT = range(4)


class CTarget(ctypes.Structure):
    """``ts_target``."""

    _fields_ = (
        ("arch", ctypes.c_char * 24), ("card", ctypes.c_char * CARD), ("cores", ctypes.c_uint32),
        ("is_cuda", ctypes.c_int),
    )  # fmt: skip

    @property
    def name(self) -> str:
        made = ctypes.create_string_buffer(NAME)
        return machine_library().ts_target_name(ctypes.byref(self), made).decode()


@lru_cache(maxsize=1)
def folder() -> Path:
    made = Path(tempfile.mkdtemp(prefix="tilesmith-machine-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


@lru_cache(maxsize=1)
def machine_library() -> ctypes.CDLL:
    path = folder() / "libmachine.so"
    sources = [str(file) for file in sorted(CSRC.glob("ts_*.c"))]
    run(
        [
            *find_compiler().command,
            "-std=c11",
            "-O0",
            "-fPIC",
            "-shared",
            *sources,
            "-o",
            str(path),
            "-lpthread",
            "-ldl",
        ]
    )
    library = ctypes.CDLL(str(path))
    for name in ("ts_target_name", "ts_x86_arch", "ts_capped_arch", "ts_cuda_arch"):
        getattr(library, name).restype = ctypes.c_char_p
    library.ts_quota_cores.restype = ctypes.c_int64
    return library


@lru_cache(maxsize=1)
def ts_query() -> Path:
    """The program, built by the README's command."""
    (command,) = re.findall(r"```sh\n(cc .* -o ts-query .*)\n```", (CSRC / "README.md").read_text())
    command = command.replace("cc ", " ".join(find_compiler().command) + " ", 1)
    run(["sh", "-c", command.replace("-o ts-query", f"-o {folder()}/ts-query")], cwd=CSRC)
    return folder() / "ts-query"


def read_target(name: str) -> CTarget | str:
    """The target of a name, or the message that refuses it."""
    target, error = CTarget(), ctypes.create_string_buffer(256)
    status = machine_library().ts_target_read(name.encode(), ctypes.byref(target), error)
    return error.value.decode() if status else target


def run(command: list[str], **options) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, **options)
    assert done.returncode == 0, done.stderr
