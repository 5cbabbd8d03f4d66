"""One shared object from any number of generated sources, in one compiler call."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tilesmith.errors import CompileError
from tilesmith.plan.records import Source
from tilesmith.targets.target import Target
from tilesmith.toolchain.compilers import Compiler, command_line, find_compiler

_COMPILE_SECONDS = 600.0


def unit_text(sources: Sequence[Source]) -> str:
    """The compile unit of ``sources``: each prelude once, then each distinct source once, in the order given."""
    preludes = dict.fromkeys(source.prelude for source in sources)
    bodies = dict.fromkeys(source.text for source in sources)
    return "".join(text if text.endswith("\n") else text + "\n" for text in (*preludes, *bodies) if text)


def build_unit(sources: Sequence[Source], target: Target, out_path: Path, compiler: Compiler | None = None) -> None:
    """Compile ``sources`` into the shared object ``out_path``, which appears whole or not at all.

    Raises ``NoCompilerError``, or ``CompileError`` with the first error line and the place where the source was kept.
    """
    foreign = next((source for source in sources if source.language != "c"), None)
    if foreign is not None:
        raise CompileError(f"{foreign.symbol}: a C compiler cannot compile language {foreign.language!r}")
    compiler = compiler or find_compiler()
    descriptor, staged = tempfile.mkstemp(prefix=f".{out_path.name}.", suffix=".tmp", dir=out_path.parent)
    os.close(descriptor)
    try:
        _compile(unit_text(sources), target, Path(staged), compiler)
        os.replace(staged, out_path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(staged)
        raise


def _compile(text: str, target: Target, out_path: Path, compiler: Compiler) -> None:
    with tempfile.TemporaryDirectory(prefix="tilesmith-") as folder:
        # The name is fixed: compilers write it into the binary, and one source must always make the same bytes.
        (Path(folder) / "unit.c").write_text(text)
        command = command_line(compiler, target, "unit.c", str(out_path))
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=False
            )
            output = done.stderr or done.stdout
            status = done.returncode
        except subprocess.TimeoutExpired:
            output, status = f"error: no end after {_COMPILE_SECONDS:.0f} s", 1
        except OSError as error:
            output, status = f"error: {error}", 1
    if status == 0:
        return
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    first = next((line for line in lines if "error" in line), lines[0] if lines else f"exit status {status}")
    raise CompileError(f"{compiler.command[0]} refused generated source: {first} (source kept in {_keep(text)})")


def _keep(text: str) -> Path:
    """Where a refused source can be read after the failure."""
    descriptor, name = tempfile.mkstemp(prefix="tilesmith-refused-", suffix=".c")
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    return Path(name)
