"""The C side of problems, through ctypes: ``ts_desc`` as its header has it, and the calls that read one."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import tilesmith.runtime
from tilesmith.toolchain.compilers import find_compiler

CSRC = Path(tilesmith.runtime.__file__).parent / "csrc"
HEADER = (CSRC / "ts_types.h").read_text()
_TYPES = {"uint32_t": ctypes.c_uint32, "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "double": ctypes.c_double}
_FIELD = re.compile(r"^  (u?int32_t|int64_t|double) (\w+)(?:\[(\d)\])?;", re.M)
ABI_VERSION = int(re.findall(r"#define TS_ABI_VERSION (\d+)", HEADER)[0])
KEY_ROOM = int(re.findall(r"#define TS_KEY_ROOM (\d+)", HEADER)[0])
OK, BAD_ARGUMENT, BAD_PROBLEM = 0, 2, 6  # of ts_status
# What reads descriptions, and what computes the plain reference: a quarter and a half of the runtime.
OWN = ("problem", "fields", "conv", "gemm", "canonical", "key", "real", "spellings")
DESCRIPTIONS = tuple(f"ts_{name}.c" for name in (*OWN, "error"))
REFERENCE = (*DESCRIPTIONS, "ts_reference*.c", "ts_pool.c", "ts_wait.c")


def _fields(struct: str) -> list[tuple[str, type]]:
    (body,) = re.findall(rf"typedef struct {struct} {{\n(.*?)\n}} {struct};", HEADER, re.S)
    return [(name, _TYPES[kind] * int(count) if count else _TYPES[kind]) for kind, name, count in _FIELD.findall(body)]


class Desc(ctypes.Structure):
    _fields_ = _fields("ts_desc")


class Shape(ctypes.Structure):
    _fields_ = _fields("ts_shape")


class Error(ctypes.Structure):
    _fields_ = [("text", ctypes.c_char * 256)]  # noqa: RUF012  # what ctypes reads


def build(folder: Path, *more: str, only: tuple[str, ...] = DESCRIPTIONS) -> Problems:
    """Files of the runtime as a shared library, by default those of descriptions; ``more``: compiler's arguments."""
    library = folder / "libts.so"
    sources = [str(file) for pattern in only for file in sorted(CSRC.glob(pattern))]
    flags = ["-std=c11", "-O0", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", f"-I{CSRC}", *more]
    subprocess.run([*find_compiler().command, *flags, *sources, "-o", str(library), "-lpthread", "-ldl"], check=True)
    return Problems(library)


class Problems:
    """The calls of ``ts_problem.h``."""

    def __init__(self, library: Path) -> None:
        self.c = ctypes.CDLL(str(library))
        self.c.ts_desc_init.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32]
        self.c.ts_problem_key.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p]
        self.c.ts_problem_spelling.argtypes = [
            ctypes.c_void_p, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p,
        ]  # fmt: skip
        self.c.ts_output_shape.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        self._room = ctypes.create_string_buffer(KEY_ROOM)
        plain = Desc()
        assert self.c.ts_desc_init(ctypes.addressof(plain), ctypes.sizeof(plain), ABI_VERSION) == OK
        self._defaults = bytes(plain)

    def desc(self, **values: object) -> Desc:
        """The defaults with these fields changed; a sequence begins at the first item of its array."""
        desc = Desc.from_buffer_copy(self._defaults)
        for name, value in values.items():
            if isinstance(value, list | tuple):
                getattr(desc, name)[: len(value)] = value
            else:
                setattr(desc, name, value)
        return desc

    def key(self, desc: ctypes.Structure) -> tuple[int, str, str]:
        """``(status, key, message)``."""
        error = Error()
        status = self.c.ts_problem_key(ctypes.addressof(desc), self._room, KEY_ROOM, ctypes.addressof(error))
        return status, self._room.value.decode(), error.text.decode()

    def spellings(self, desc: ctypes.Structure) -> list[str]:
        """All keys."""
        found: list[str] = []
        while not found or found[-1]:
            place = ctypes.addressof(desc), len(found), self._room, KEY_ROOM, None
            assert self.c.ts_problem_spelling(*place) == OK
            found.append(self._room.value.decode())
        return found[:-1]

    def shape(self, desc: ctypes.Structure) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """``(sizes, strides, elements)`` of the result."""
        shape = Shape()
        assert self.c.ts_output_shape(ctypes.addressof(desc), ctypes.addressof(shape), None) == OK
        return tuple(shape.size[: shape.axes]), tuple(shape.stride[: shape.axes]), shape.elements
