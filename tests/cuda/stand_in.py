"""The stand-in for libcuda, built and opened once a process; its kernels run on the host through the emulator."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from functools import cache, lru_cache
from math import prod
from pathlib import Path

from tilesmith.codegen.cuda.hopper import (
    hopper_prelude,
    mma_arrive_text,
    mma_bulk_text,
    mma_producer_text,
    mma_wait_text,
)
from tilesmith.codegen.cuda.mma import mma_prelude
from tilesmith.plan.records import Source
from tilesmith.toolchain.toolchains import unit_text

HERE = Path(__file__).parent
LAUNCHER = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint), ctypes.POINTER(ctypes.c_uint), ctypes.c_uint,
    ctypes.POINTER(ctypes.c_void_p),
)  # fmt: skip
OK, LAUNCH_FAILED = 0, 719
FLUSH = b"ts_flush"
# No C++ library and no tables of exceptions: they take a sixth of the compiler's time.
_FLAGS = (
    "-std=c++17", "-Og", "-w", "-ffp-contract=off", "-fno-exceptions", "-fno-asynchronous-unwind-tables", "-fPIC",
)  # fmt: skip


class StandIn:
    """The library with what only tests call."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.library = ctypes.CDLL(str(path))
        self.kernels: dict[str, ctypes._CFuncPtr] = {}
        self._compiling = threading.Lock()
        self._callback = LAUNCHER(self._launch)
        self.executes(False)

    def executes(self, on: bool) -> None:
        """Whether launches run emulated kernels (``emulate`` first)."""
        self.library.fake_set_launcher(self._callback if on else None)

    def log(self) -> list[str]:
        """The calls since the last time."""
        buffer = ctypes.create_string_buffer(1 << 20)
        self.library.fake_take_log.restype = ctypes.c_size_t
        size = self.library.fake_take_log(buffer, ctypes.c_size_t(len(buffer)))
        return buffer.raw[:size].decode().splitlines()

    def fail_next(self, name: str, code: int) -> None:
        self.library.fake_fail_next(name.encode(), code)

    def come_early(self, count: int) -> None:
        """The next queries of so many events find the device there already."""
        self.library.fake_set_early(count)

    def leave(self, nbytes: int) -> None:
        """So much memory is free on each device."""
        self.library.fake_set_free(ctypes.c_size_t(nbytes))

    def call_devices(self, name: str) -> None:
        """What the driver calls its devices, from the next process on, or once ``detect_cuda`` has forgotten."""
        self.library.fake_set_name(name.encode())

    def emulate(self, source: Source) -> None:
        """Make the kernel of ``source`` runnable; several threads may ask for the same one."""
        with self._compiling:
            if source.symbol not in self.kernels:
                library = ctypes.CDLL(str(_emulated(source)))
                self.kernels[source.symbol] = library.run_emulated

    def _launch(self, name, grid, block, shared, parameters) -> int:
        kernel = self.kernels.get(name.decode())
        if kernel is None:
            return OK if name == FLUSH else LAUNCH_FAILED  # which only reads and waits
        kernel(grid, block, parameters)
        return 0


@lru_cache(maxsize=1)
def folder() -> Path:
    made = Path(tempfile.mkdtemp(prefix="tilesmith-stand-in-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


@lru_cache(maxsize=1)
def stand_in() -> StandIn:
    path = folder() / "libfake_cuda.so"
    _run([*_compiler("cc"), "-std=c11", "-D_DEFAULT_SOURCE", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall",
          "-Wextra", "-Werror", str(HERE / "fake_cuda.c"), "-o", str(path), "-lpthread"])  # fmt: skip
    os.environ["TILESMITH_LIBCUDA"] = str(path)
    return StandIn(path)


def _emulated(source: Source) -> Path:
    """The kernel as host code: ``run_emulated(grid, block, parameters)``."""
    text = unit_text([source])
    headers = ["emulator.h"]
    if source.prelude == mma_prelude():
        headers.append("emulated_mma.h")
        text = text.replace(mma_prelude(), "")
        text = text.replace("extern __shared__ __align__(128) unsigned char memory[];",
                            "unsigned char *const memory = emulated_shared;")  # fmt: skip
        text = text.replace('asm("" : "+l"(place));', "")  # it hides an address from the compiler
        for left_out in (mma_bulk_text(), mma_wait_text(), mma_arrive_text(), mma_producer_text()):
            text = text.replace(left_out, "")
        text = re.sub(r'asm volatile\("barrier\.sync 1, %0;"[^;]*;', "__syncthreads();", text)
        # Products of warpgroups are done when they are issued.
        text = re.sub(r'asm volatile\("(fence\.proxy|wgmma)[^;]*;" ::("n"\([^"]*\) )?: "memory"\);', "", text)
        product = r'asm volatile\("\{ \.reg \.pred.*?: (?:"l"\(a\)|"r"\(a\[0\]\)[^;]*?), "l"\(b\), "r"\(add\)\);'
        text = re.sub(product, "emulated_product(Element(), sums, a, b, add);", text, flags=re.DOTALL)
    hopper = source.prelude == hopper_prelude()
    if hopper:
        headers.append("emulated_hopper.h")
        text = text.replace(hopper_prelude(), "")
        text = text.replace("extern __shared__ __align__(1024) unsigned char ts_shared[];",
                            "unsigned char *const ts_shared = emulated_shared;")  # fmt: skip
        product = r'(ts_u64 a, ts_u64 b, int add\) \{)\s+asm .*?p, 1, 1(?:, (\d), (\d))?; \}.*?"r"\(add\)\);\s'
        text = re.sub(product, _product, text, flags=re.DOTALL)
        product = r'(const ts_u32 \(&a\)\[4\], ts_u64 b, int add\) \{)\s+asm .*?p, 1, 1, (\d); \}.*?"r"\(add\)\);\s'
        text = re.sub(product, r"\1 emulated_product<Element>(sums, a, b, add, \2);", text, flags=re.DOTALL)
        text = re.sub(r"TS_DEVICE bool elected\(\) \{.*?\n\}\n", "", text, flags=re.DOTALL)
    head = re.search(r'extern "C" __global__ void [^{]*?' + source.symbol + r"\(([^)]*)\)", text)
    assert head is not None
    taken = head[1]
    if taken == "TS_PARAMETERS":
        (taken,) = re.findall(r"#define TS_PARAMETERS (.*)\n", text)
    types = [re.sub(r"\w+$", "", parameter.strip()) for parameter in taken.split(",")]
    scope = "using namespace ts_mma; " if source.prelude == mma_prelude() else ""
    if f"namespace {source.symbol}_scope" in text:
        scope += f"using namespace {source.symbol}_scope; "
    given = ", ".join(f"*({kind.strip()} *)p[{i}]" for i, kind in enumerate(types))
    unit = folder() / f"{source.symbol}.cpp"
    unit.write_text(
        f"{text}\n"
        f"static void call(void **p) {{ {'emulated_begin(); ' * hopper}{scope}{source.symbol}({given}); }}\n"
        'extern "C" void run_emulated(const unsigned *grid, const unsigned *block, void **p) '
        f"{{ {'emulated_block = ~0ul; ' * hopper}emulate(call, grid, block, p); }}\n"
    )
    path = unit.with_suffix(".so")
    _run([*_compiler("c++"), *_FLAGS, "-include", str(_prelude(_cluster(text), *headers)), "-shared", "-nodefaultlibs",
          str(unit), "-o", str(path), "-lm", "-lc", "-lgcc"])  # fmt: skip
    return path


@cache
def _prelude(cluster: int, *headers: str) -> Path:
    """What all kernels of clusters of one size include, compiled once.

    The emulator's functions run for longer than a kernel's own lines, so they alone are optimised.
    """
    path = folder() / f"prelude-{cluster}-{headers[-1]}"
    included = "".join(f'#include "{HERE / name}"\n' for name in headers)
    path.write_text(
        f"#define EMULATED_CLUSTER {cluster}\n"
        f'#pragma GCC push_options\n#pragma GCC optimize("O1")\n{included}#pragma GCC pop_options\n'
    )
    command = [*_compiler("c++"), *_FLAGS, "-x", "c++-header", str(path), "-o", f"{path}.gch"]
    # A compiler that makes no such files reads the text each time.
    subprocess.run(command, capture_output=True, check=False)
    return path


def _product(found: re.Match[str]) -> str:
    """16-bit operands say whether their rows are contiguous; those of others are not."""
    return f"{found[1]} emulated_product<Element>(sums, a, b, add, {found[2] or 0}, {found[3] or 0});"


def _cluster(text: str) -> int:
    """The blocks of a kernel's clusters: those that share operands, or sums."""
    return prod(int(count) for count in re.findall(r"\b(?:CAST|SPLIT) = (\d+)", text))


def _compiler(kind: str) -> list[str]:
    """A C or C++ compiler: the system's, else the ziglang wheel's."""
    for name in {"cc": ("cc", "gcc", "clang"), "c++": ("c++", "g++", "clang++")}[kind]:
        if shutil.which(name):
            return [name]
    with contextlib.suppress(ImportError):
        import ziglang  # noqa: F401

        return [sys.executable, "-m", "ziglang", kind]
    raise RuntimeError(f"no {kind} compiler was found; install gcc, or pip install ziglang")


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
