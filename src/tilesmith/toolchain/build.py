"""One binary from any number of generated sources, in one compiler call: a shared object, or a cubin."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tilesmith.errors import CompileError
from tilesmith.plan.records import Source
from tilesmith.targets.target import CpuTarget, Target
from tilesmith.toolchain.compilers import Compiler, command_line, temporary
from tilesmith.toolchain.elf import why_it_cannot_run
from tilesmith.toolchain.files import scratch
from tilesmith.toolchain.nvrtc import Nvrtc
from tilesmith.toolchain.processes import run
from tilesmith.toolchain.resources import KernelResources, read_resources
from tilesmith.toolchain.toolchains import Toolchain, find_toolchain, flags_of, unit_text

COMPILE_S = 600.0
_log = logging.getLogger("tilesmith.compiler")


class SlowCompilerError(CompileError):
    """The compiler did not end within its limit, which may have been short: the source is not refused."""


def build_unit(
    sources: Sequence[Source], target: Target, out_path: Path, compiler: Toolchain | None = None,
    limit_s: float = COMPILE_S,
) -> tuple[KernelResources, ...]:  # fmt: skip
    """Compile ``sources`` into ``out_path`` (a shared object, or a cubin), written atomically.

    Returns what each CUDA kernel takes of a multiprocessor. Raises ``NoCompilerError``, or ``CompileError`` with the
    first error line and the place where the source was kept, or that the compiler did not end within ``limit_s``.
    """
    language = "c" if isinstance(target, CpuTarget) else "cuda"
    foreign = next((source for source in sources if source.language != language), None)
    if foreign is not None:
        raise CompileError(f"{foreign.symbol}: language {foreign.language!r} does not run on {target.name}")
    compiler = compiler or find_toolchain(target)
    flags_of(compiler, target)
    descriptor, staged = tempfile.mkstemp(prefix=f".{out_path.name}.", suffix=".tmp", dir=out_path.parent)
    os.close(descriptor)
    try:
        log = _compile(unit_text(sources), target, Path(staged), compiler, limit_s)
        with open(staged, "rb") as file:
            reason = why_it_cannot_run(file.read(20), target)
        if reason is not None:
            raise CompileError(
                f"{compiler.identity} makes binaries that {target.name} cannot run ({reason}); "
                "set CC to a compiler that makes them, without flags such as -m32"
            )
        os.replace(staged, out_path)
        return read_resources(log)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(staged)
        raise


def exact_command(compiler: Toolchain, target: Target, source: str, output: str) -> tuple[str, ...]:
    """The command that compiles ``source`` into ``output``; NVRTC's process reads the source on stdin."""
    if isinstance(compiler, Nvrtc) and not isinstance(target, CpuTarget):
        return compiler.command(target, output)
    if isinstance(compiler, Compiler) and isinstance(target, CpuTarget):
        return command_line(compiler, target, source, output)
    raise CompileError(f"{compiler.identity} does not compile for {target.name}")


def _compile(text: str, target: Target, out_path: Path, compiler: Toolchain, limit_s: float) -> str:
    """The compiler's log."""
    with scratch() as folder:
        # The name is fixed: compilers write it into the binary, and one source must always make the same bytes.
        (folder / "unit.c").write_text(text)
        command = exact_command(compiler, target, "unit.c", str(out_path))
        _log.debug("in %s: %s", folder, shlex.join(command))
        began = time.perf_counter()
        try:
            with open(folder / "unit.c", encoding="utf-8") as unit:
                # Its own temporary files lie here too, so that a compiler that is killed leaves none.
                done = run(
                    command, cwd=folder, stdin=unit, timeout=limit_s,
                    env={**compiler.environment_of(os.environ), **temporary(str(folder))},
                )  # fmt: skip
            output, status = f"{done.stderr}\n{done.stdout}", done.returncode
        except subprocess.TimeoutExpired:
            raise SlowCompilerError(f"{compiler.identity} did not end within {limit_s:.1f} s") from None
        except OSError as error:
            output, status = f"error: {error}", 1
    _log.debug("exit status %d after %.0f ms", status, (time.perf_counter() - began) * 1e3)
    if status == 0:
        return output
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    first = next((line for line in lines if "error" in line), lines[0] if lines else f"exit status {status}")
    name, suffix = (compiler.command[0], ".c") if isinstance(compiler, Compiler) else (compiler.identity, ".cu")
    raise CompileError(f"{name} refused generated source: {first} ({_keep(text, suffix)})")


def _keep(text: str, suffix: str) -> str:
    """Where a refused source can be read after the failure."""
    try:
        descriptor, name = tempfile.mkstemp(prefix="tilesmith-refused-", suffix=suffix)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
    except OSError as error:
        return f"source not kept: {error}"
    return f"source kept in {name}"
