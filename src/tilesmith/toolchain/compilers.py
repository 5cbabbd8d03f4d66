"""C compilers: which one is used, and the flags it gets."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from tilesmith.errors import NoCompilerError
from tilesmith.targets.target import CpuTarget

# One standard for all: gcc 15 would take C23 by default. Generated code is measured, not read, so its warnings
# are off; a kernel links with nothing, so nothing that needs a library's help may be switched on by a distribution.
_COMMON = (
    # Behind the flags of CC, and of a script that CC names: nothing may allow another arithmetic than C's.
    "-fno-fast-math", "-fno-unsafe-math-optimizations", "-fno-associative-math", "-fno-reciprocal-math",
    "-fno-finite-math-only", "-fsigned-zeros", "-fno-rounding-math",
    "-std=gnu11", "-w", "-O2", "-fPIC", "-shared", "-nostdlib",
    "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-falign-functions=64",
    "-fno-stack-protector", "-fno-asynchronous-unwind-tables",
)  # fmt: skip
_OF_SHARED_OBJECTS = ("-shared", "-nostdlib")
# One segment of code and constants, no names but the kernel's: a tenth of the bytes to check, half of the mappings.
_SMALL = ("-s", "-Wl,-z,noseparate-code,-z,norelro,--hash-style=gnu,--build-id=none")
_LINK = _SMALL if sys.platform == "linux" else ()  # other systems' linkers have other options
# zig links for Linux from every system, and writes the folder of a unit into its debug information.
_ZIG_LINK = ("-g0", "-s", "-Wl,-z,norelro,--hash-style=gnu,--build-id=none")
_ON_PATH = ("cc", "gcc", "clang")
_PROBE_SECONDS = 60.0
# Variables that say where gcc or clang find their parts, or that wrappers of distributions take flags from. Those that
# say where headers and libraries lie change nothing here: a unit includes and links none.
_READ_BY_COMPILERS = (
    "COMPILER_PATH", "GCC_EXEC_PREFIX", "NIX_CFLAGS_COMPILE", "NIX_CFLAGS_LINK", "NIX_LDFLAGS", "LDEMULATION",
    "LD_RUN_PATH", "MACOSX_DEPLOYMENT_TARGET", "SDKROOT",
)  # fmt: skip
# Where compilers put what they need for a moment. zig keeps a cache in the home folder otherwise, and does not even say
# its version if it cannot write there.
_TEMPORARY = ("TMPDIR", "ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")
_WITHHELD = ("CCC_OVERRIDE_OPTIONS",)  # clang lets it edit every flag, those behind CC's too
# Flags of CC that change what kernels compute and that no later flag takes back.
_REFUSED = (
    "-fsingle-precision-constant", "-ffp-model", "-fdenormal-fp-math", "-mfpmath", "-mdaz-ftz", "-mrecip",
    "-msoft-float", "-mfloat-abi", "-fexcess-precision",
)  # fmt: skip


@dataclass(frozen=True)
class Compiler:
    """A C compiler: ``command`` starts it, ``kind`` is ``gcc``, ``clang`` or ``zig``, ``version`` its own words.

    ``resolved`` are the files that the command's words name, ``environment`` the variables that it reads.
    """

    command: tuple[str, ...]
    kind: str
    version: str
    resolved: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """The compiler's name in messages and records: its version, and the flags and variables that it was given."""
        given = (*self.command[1:], *self.environment) if self.kind != "zig" else self.environment
        return f"{self.kind} {self.version}" + (f" with {' '.join(given)}" if given else "")

    @property
    def fingerprint(self) -> str:
        """The compiler's part of an artifact's key: all that can differ between two compilers, their paths included."""
        return repr((self.kind, self.version, self.command, self.resolved, self.environment))

    def environment_of(self, process: Mapping[str, str]) -> dict[str, str]:
        """The environment of its process."""
        return {name: value for name, value in process.items() if name not in _WITHHELD}

    def flags(self, target: CpuTarget) -> tuple[str, ...]:
        """Everything between the command and its files, for one shared object."""
        if self.kind == "zig":
            # NOTE: without -fno-sanitize=all zig builds its UBSan runtime first, 135 s on a cold cache.
            return (*_COMMON, *_ZIG_LINK, "-target", target.zig_target, "-fno-sanitize=all", *_for_zig(target.flags))
        return (*_COMMON, *_LINK, *target.flags)


def find_compiler() -> Compiler:
    """The compiler of ``$CC``, else the first of cc, gcc and clang that runs, else the ziglang wheel.

    Raises ``NoCompilerError`` when there is none, or when ``$CC`` names one that does not run, or a flag that changes
    what kernels compute.
    """
    return _find(os.environ.get("CC", ""), os.environ.get("PATH", ""), _environment())


def linked_flags(target: CpuTarget, *, zig: bool = False) -> tuple[str, ...]:
    """The flags of gcc and clang, or of zig, for a kernel that is linked into a program: its results have the same
    bits as those of a shared object."""
    own = _for_zig(target.flags) if zig else target.flags
    return (*(flag for flag in _COMMON if flag not in _OF_SHARED_OBJECTS), *own)


def _environment() -> tuple[str, ...]:
    return tuple(f"{name}={os.environ[name]}" for name in _READ_BY_COMPILERS if os.environ.get(name))


def temporary(folder: str) -> dict[str, str]:
    """The variables that make compilers keep all that they write besides their output in ``folder``."""
    return dict.fromkeys(_TEMPORARY, folder)


def compiler_for(target: CpuTarget) -> Compiler:
    """A compiler that makes binaries for ``target``: this machine's compiler for its own instruction set; for another
    one ``$CC`` or the system's compiler if they make them, else ``aarch64-linux-gnu-gcc`` or the like, else zig.

    Raises ``NoCompilerError``, also for a ``$CC`` that does not run.
    """
    machine = target.zig_target.partition("-")[0]
    if machine == _processor(platform.machine().lower()):
        return find_compiler()
    try:
        compiler: Compiler | None = find_compiler()
    except NoCompilerError:
        if os.environ.get("CC", "").strip():
            raise
        compiler = None
    if compiler is not None and (compiler.kind == "zig" or _machine(compiler.command) == machine):
        return compiler
    found = shutil.which(f"{machine}-linux-gnu-gcc")
    other = (_probe((found,)) if found else None) or _zig()
    if other is None:
        raise NoCompilerError(
            f"no compiler here makes {machine} binaries; install one (Debian, Ubuntu: "
            f"`apt install gcc-{machine.replace('_', '-')}-linux-gnu`, or `pip install ziglang`)"
        )
    return other


def machine_of(compiler: Compiler) -> str:
    """The processor that a compiler makes binaries for, such as ``x86_64``: zig's is this machine's."""
    return _processor(platform.machine().lower()) if compiler.kind == "zig" else _machine(compiler.command)


def command_line(compiler: Compiler, target: CpuTarget, source: str, output: str) -> tuple[str, ...]:
    """The exact command that compiles ``source`` into ``output``."""
    return (*compiler.command, *compiler.flags(target), "-o", output, source)


@lru_cache(maxsize=8)
def _find(cc: str, path: str, environment: tuple[str, ...]) -> Compiler:
    if cc.strip():
        try:
            words = tuple(shlex.split(cc))
        except ValueError:  # a quote that is not closed
            words = ()
        refused = next((word for word in words[1:] if word.startswith(_REFUSED)), None)
        if refused is not None:
            raise NoCompilerError(f"CC={cc!r}: {refused} changes what kernels compute; set CC without it, or unset it")
        compiler = _probe(words) if words else None
        if compiler is None:
            raise NoCompilerError(f"CC={cc!r} does not run; set CC to a C compiler, or unset it")
        return compiler
    for name in _ON_PATH:
        found = shutil.which(name, path=path)
        compiler = _probe((found,)) if found else None
        if compiler is not None:
            return compiler
    compiler = _zig()
    if compiler is not None:
        return compiler
    raise NoCompilerError(
        "no C compiler: none of cc, gcc, clang on PATH runs; install one (Debian, Ubuntu: `apt install gcc`) "
        "or the one on PyPI (`pip install ziglang`)"
    )


def _zig() -> Compiler | None:
    if importlib.util.find_spec("ziglang") is None:
        return None
    return _probe((sys.executable, "-m", "ziglang", "cc"))


@lru_cache(maxsize=8)
def _machine(command: tuple[str, ...]) -> str:
    """The processor that gcc or clang compiles for; empty if it does not tell."""
    try:
        done = subprocess.run(
            [*command, "-dumpmachine"], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return _processor(done.stdout.strip().partition("-")[0])


def _processor(name: str) -> str:
    return {"arm64": "aarch64", "amd64": "x86_64"}.get(name, name)


def _probe(command: tuple[str, ...]) -> Compiler | None:
    """The compiler that ``command`` starts, or None if it does not say a version."""
    is_zig = "ziglang" in command or "zig" in os.path.basename(command[0])
    try:
        with tempfile.TemporaryDirectory() if is_zig else contextlib.nullcontext("") as folder:
            done = subprocess.run(
                [*command, "--version"], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False,
                env={**os.environ, **(temporary(folder) if is_zig else {})},
            )  # fmt: skip
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    if done.returncode != 0 or not done.stdout.strip():
        return None
    kind = "zig" if is_zig else "clang" if "clang" in done.stdout else "gcc"
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    found = [shutil.which(word) for word in command if not word.startswith("-")]
    resolved = tuple(os.path.realpath(file) for file in found if file is not None)
    # clang's second line names the machine that it compiles for; zig is told that machine, and names the host's kernel.
    version = "; ".join(lines[:2] if kind == "clang" else lines[:1])
    return Compiler(command, kind, version, resolved, _environment())


def _for_zig(flags: tuple[str, ...]) -> tuple[str, ...]:
    """zig spells CPU names with ``_``, and knows an architecture's base level as the default of ``-target`` alone."""
    spelled = []
    for flag in flags:
        name, equals, value = flag.partition("=")
        if name != "-march" or not equals:
            spelled.append(flag)
        elif value != "armv8-a":
            spelled.append(f"{name}={value.replace('-', '_')}")
    return tuple(spelled)
