"""The parts of a C library, before any file is written."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tilesmith.errors import ArgumentError
from tilesmith.package.build import PackedProblem
from tilesmith.package.records import KernelPackage
from tilesmith.targets.target import CpuTarget, Target

LONGEST_NAME = 31
_NAME = re.compile(rf"[A-Za-z][A-Za-z0-9_]{{0,{LONGEST_NAME - 1}}}")
# What a name may not be: words of C and C++, namespaces, and headers that the library's own would hide.
_TAKEN = frozenset(
    "alignas alignof and asm auto bitand bitor bool break case catch char class compl concept const constexpr continue "
    "decltype default delete do double else enum explicit export extern false float for friend goto if inline int long "
    "main mutable namespace new noexcept not nullptr operator or private protected public register requires restrict "
    "return short signed sizeof static std struct switch template this throw tilesmith true try ts typedef typeid "
    "typename union unsigned using virtual void volatile while xor std posix "
    "assert complex ctype dlfcn errno fenv inttypes limits locale math pthread sched setjmp signal stdalign stdarg "
    "stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar unistd wchar "
    "wctype".split()
)


@dataclass(frozen=True)
class LinkedKernel:
    """A kernel of a CPU whose C text the library compiles: plans name it by ``digest`` (hex), steps by ``symbol``.

    ``flags`` are for gcc and clang; ``expected_bytes`` is about what the compiled kernel adds to a library.
    """

    digest: str
    symbol: str
    text: str
    flags: tuple[str, ...]
    expected_bytes: int


@dataclass(frozen=True)
class TargetPart:
    """The content of a library for one target: its package (plans, cubins and rows) and the C kernels of its plans.

    ``problems`` are those asked for, with the reason of each one that has no plan.
    """

    target: Target
    package: KernelPackage
    kernels: tuple[LinkedKernel, ...]
    problems: tuple[PackedProblem, ...]

    @property
    def machine(self) -> str:
        """The processor that compiles its kernels: ``x86_64`` or ``aarch64``; empty for a GPU, whose are compiled."""
        return self.target.zig_target.partition("-")[0] if isinstance(self.target, CpuTarget) else ""


@dataclass(frozen=True)
class Library:
    """A C library: its name, which begins every public symbol, and its parts, at least one.

    ``version`` is ``major.minor.patch``. Raises ``ArgumentError`` for a name that cannot begin symbols of C.
    """

    name: str
    version: str
    parts: tuple[TargetPart, ...]

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name.lower() in _TAKEN or self.name.lower().startswith("ts_"):
            raise ArgumentError(
                f"library name {self.name!r} cannot begin the names of C functions: write a letter, then letters, "
                f"digits or _, {LONGEST_NAME} at most, and no word or header of C or C++"
            )
