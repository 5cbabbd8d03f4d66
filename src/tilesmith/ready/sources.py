"""The sources of a problem's kernels, and the exact command that compiles each."""

from __future__ import annotations

import hashlib
import logging
import shlex
from pathlib import Path

from tilesmith.dispatch.choice import Choice
from tilesmith.dispatch.choose import NOTHING
from tilesmith.dispatch.planning import existing_config
from tilesmith.dispatch.request import Request
from tilesmith.dispatch.resolve import decide
from tilesmith.errors import FileFormatError, PlanError
from tilesmith.plan.records import Source
from tilesmith.solvers.table import candidates
from tilesmith.targets.target import CpuTarget, Target
from tilesmith.toolchain.compilers import command_line, compiler_for
from tilesmith.toolchain.files import read, replace
from tilesmith.toolchain.nvrtc import find_nvrtc
from tilesmith.toolchain.toolchains import unit_text

_LONGEST_NAME = 200  # file systems take 255 bytes
_log = logging.getLogger("tilesmith.dispatch")


def write_sources(request: Request, root: Path) -> tuple[Choice, Path]:
    """Write the sources of what is chosen, in mode ``fast``, into a folder of the problem's own under ``root``.

    Nothing is compiled or measured. Raises ``NoSolutionError``, ``FileFormatError``.
    """
    signature, target = request.signature, request.target
    without = NOTHING
    while True:
        choice = decide(request, without)
        candidate = next(each for each in candidates(signature, target) if each.name == choice.solver)
        try:
            config = existing_config(candidate, choice.config, target)
            break
        except PlanError as error:  # of a record that another program wrote
            _log.warning("%s; the next best is used", error)
        without |= {(choice.solver, choice.config)}
    draft = candidate.solver.draft(candidate.geometry, config, target)
    folder = root / _folder_name(signature.get_func_name())
    for source in draft.sources:
        write_source(source, folder)
    return choice, folder


def write_source(source: Source, folder: Path) -> Path:
    """Write one source, unless it lies there already. Raises ``FileFormatError`` where it cannot be written."""
    path = folder / f"{source.symbol}.{'c' if source.language == 'c' else 'cu'}"
    text = unit_text([source])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not _holds(path, text.encode()):
            replace(path, text.encode())
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be written: {error.strerror or error}") from None
    return path


def _holds(path: Path, data: bytes) -> bool:
    try:
        return read(str(path)) == data
    except OSError:
        return False


def compiler_command(target: Target, source: Source) -> str:
    """The shell command that compiles a source; raises ``NoCompilerError`` when nothing here does."""
    if isinstance(target, CpuTarget):
        return shlex.join(command_line(compiler_for(target), target, f"{source.symbol}.c", f"{source.symbol}.so"))
    return f"{shlex.join(find_nvrtc().command(target, f'{source.symbol}.cubin'))} < {source.symbol}.cu"


def _folder_name(name: str) -> str:
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 17]}_{hashlib.sha256(name.encode()).hexdigest()[:16]}"
