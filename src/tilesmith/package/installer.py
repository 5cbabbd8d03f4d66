"""Installs packages on machines without Python: a shell script, and the program ``ts-query`` that it needs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tilesmith.errors import CompileError, PackageError
from tilesmith.targets.target import CpuTarget
from tilesmith.toolchain.compilers import Compiler, compiler_for, temporary
from tilesmith.toolchain.files import replace, scratch
from tilesmith.toolchain.processes import run

SCRIPT = "tilesmith-install.sh"
QUERY = "ts-query"
_SHELL = Path(__file__).parent / "shell" / SCRIPT
_CSRC = Path(__file__).parents[1] / "runtime" / "csrc"
_COMPILE_S = 300.0


def write_installer(folder: Path, targets: Sequence[CpuTarget]) -> tuple[Path, ...]:
    """Write the script into a folder, and ``ts-query-MACHINE`` for the instruction set of each target.

    Args:
        folder: Made if it is missing.
        targets: Of them the instruction set counts alone, such as ``aarch64``.

    Returns:
        The files.

    Raises:
        NoCompilerError: No compiler here makes binaries for a target.
        CompileError: The compiler refuses the program.
        PackageError: A file cannot be written.
    """
    machines = {target.zig_target.partition("-")[0]: target for target in targets}
    programs = {f"{QUERY}-{machine}": build_query(target) for machine, target in machines.items()}
    paths = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in {SCRIPT: _SHELL.read_bytes(), **programs}.items():
            replace(folder / name, data, durable=True)
            os.chmod(folder / name, 0o755)
            paths.append(folder / name)
    except OSError as error:
        raise PackageError(f"{folder}: cannot be written: {error.strerror or error}") from None
    return tuple(paths)


def build_query(target: CpuTarget) -> bytes:
    """The program ``ts-query`` for the instruction set of a target. Raises as ``write_installer`` does."""
    compiler = compiler_for(target)
    sources = sorted(str(path.relative_to(_CSRC)) for path in (*_CSRC.glob("ts_*.c"), *_CSRC.glob("tools/ts_*.c")))
    with scratch() as folder:
        out = folder / QUERY
        command = (*compiler.command, *_flags(compiler, target), *sources, "-o", str(out), "-lpthread", "-ldl", "-lm")
        try:
            environment = {**compiler.environment_of(os.environ), **temporary(str(folder))}
            done = run(command, timeout=_COMPILE_S, cwd=_CSRC, env=environment)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CompileError(f"{QUERY} cannot be compiled: {error}") from None
        if done.returncode != 0:
            raise CompileError(f"{QUERY} cannot be compiled for {target.arch}: {done.stderr.strip()[:600]}")
        return out.read_bytes()


def _flags(compiler: Compiler, target: CpuTarget) -> tuple[str, ...]:
    """Plain C for any processor of the instruction set; zig links to an old libc, which each system has."""
    machine = target.zig_target.partition("-")[0]
    zig = ("-target", f"{machine}-linux-gnu.2.17") if compiler.kind == "zig" else ()
    return (*zig, "-std=c11", "-O2", "-w", "-s", "-I.")
