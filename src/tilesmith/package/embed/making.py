"""Builds a library's project with make: for this machine, and for each other processor that a compiler is here for."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tilesmith.errors import CompileError, NoCompilerError
from tilesmith.package.embed.records import Library
from tilesmith.targets.detect import usable_cores
from tilesmith.targets.target import CpuTarget
from tilesmith.toolchain.compilers import Compiler, compiler_for, find_compiler, machine_of
from tilesmith.toolchain.processes import run

MAKE_S = 3600.0


@dataclass(frozen=True)
class MadeLibrary:
    """A processor for which the library was built, the folder with its libraries and the programs' folder."""

    machine: str
    libraries: Path
    programs: Path


def build_project(library: Library, folder: Path, jobs: int | None = None) -> tuple[MadeLibrary, ...]:
    """Run make in the project's folder.

    For this machine's processor the libraries go to ``lib`` and the programs to ``bin``; for another processor of the
    library's targets to ``lib/MACHINE`` and ``bin/MACHINE``, if a compiler for it is here.

    Args:
        library: What the project was made of.
        folder: Of the project.
        jobs: Compilers at a time. None: one for each usable core.

    Returns:
        What was built; this machine's first.

    Raises:
        NoCompilerError: There is neither a C compiler nor make.
        CompileError: A file was refused, or make did not end within an hour. What was compiled stays.
    """
    if shutil.which("make") is None:
        raise NoCompilerError(f"no make here: {folder} is written; build it with CMake, or install make (GNU make)")
    host = find_compiler()
    own = machine_of(host)
    made = [_made(host, folder, own, folder / "lib", folder / "bin", jobs)]
    others = {part.machine: part.target for part in library.parts if part.machine not in ("", own)}
    for machine, target in others.items():
        assert isinstance(target, CpuTarget)
        try:
            compiler = compiler_for(target)
        except NoCompilerError:
            continue  # the project builds there
        made.append(_made(compiler, folder, machine, folder / "lib" / machine, folder / "bin" / machine, jobs, target))
    return tuple(made)


def _made(
    compiler: Compiler, folder: Path, machine: str, lib: Path, programs: Path, jobs: int | None,
    target: CpuTarget | None = None,
) -> MadeLibrary:  # fmt: skip
    words = list(compiler.command)
    variables = {"LIB": str(lib.relative_to(folder)), "BIN": str(programs.relative_to(folder))}
    if compiler.kind == "zig":
        variables["AR"] = shlex.join([*words[:-1], "ar"])
        # Without a target zig compiles the runtime for this very processor, with all of its instructions.
        words += ["-target", target.zig_target if target is not None else f"{machine}-linux-gnu"]
    variables["CC"] = shlex.join(words)
    command = ["make", "-s", f"-j{jobs or usable_cores()}", *(f"{name}={value}" for name, value in variables.items())]
    try:
        done = run(command, timeout=MAKE_S, cwd=folder, env=compiler.environment_of(_environment()))
    except subprocess.TimeoutExpired:
        raise CompileError(f"make in {folder} did not end within {MAKE_S:.0f} s") from None
    if done.returncode != 0:
        lines = [line.strip() for line in f"{done.stderr}\n{done.stdout}".splitlines() if line.strip()]
        first = next((line for line in lines if "error" in line), lines[0] if lines else f"status {done.returncode}")
        raise CompileError(
            f"make in {folder} failed: {first}; to see more, type: {shlex.join(['make', '-C', str(folder)])}"
        )
    return MadeLibrary(machine, lib, programs)


def _environment() -> dict[str, str]:
    """This process's, without what a make that started it says to its children, and without a user's own flags."""
    return {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
