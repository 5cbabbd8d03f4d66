"""The compiler of each kind of target, and the text and flags that it is given."""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.errors import CompileError
from tilesmith.plan.records import Source
from tilesmith.targets.target import CpuTarget, Target
from tilesmith.toolchain.compilers import Compiler, compiler_for
from tilesmith.toolchain.nvrtc import Nvrtc, find_nvrtc

Toolchain = Compiler | Nvrtc


def find_toolchain(target: Target) -> Toolchain:
    """The compiler for ``target``: a C compiler, or NVRTC. Raises ``NoCompilerError``."""
    return compiler_for(target) if isinstance(target, CpuTarget) else find_nvrtc()


def flags_of(toolchain: Toolchain, target: Target) -> tuple[str, ...]:
    """The flags that decide the binary's bytes. Raises ``CompileError`` for a compiler of another kind of target."""
    if isinstance(toolchain, Compiler) and isinstance(target, CpuTarget):
        return toolchain.flags(target)
    if isinstance(toolchain, Nvrtc) and not isinstance(target, CpuTarget):
        return toolchain.flags(target)
    raise CompileError(f"{toolchain.identity} does not compile for {target.name}")


def unit_text(sources: Sequence[Source]) -> str:
    """The compile unit of ``sources``: each prelude once, then each distinct source once, in the order given."""
    preludes = dict.fromkeys(source.prelude for source in sources)
    bodies = dict.fromkeys(source.text for source in sources)
    return "".join(text if text.endswith("\n") else text + "\n" for text in (*preludes, *bodies) if text)
