"""Runs a PyTorch script and notes the problems that it meets, for the verbs that begin with a script."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilesmith.cli.terminal import note
from tilesmith.errors import ArgumentError, FileFormatError
from tilesmith.loading import import_whole


@dataclass(frozen=True)
class TracedScript:
    """The trace of a script (a ``torch_ops.trace.Trace``), and the script's exit status."""

    trace: Any
    status: int


def check_script(script: Path) -> None:
    """Raise ``FileFormatError`` if there is no such script."""
    if script.is_dir():
        raise FileFormatError(f"{script}: this is a folder; name the script in it")
    if not script.is_file():
        raise FileFormatError(f"{script}: there is no such file; options of the verb itself come before the script")


def trace_script(
    script: Path, arguments: Sequence[str], around: contextlib.AbstractContextManager[Any], quiet: bool
) -> TracedScript:
    """Run a script inside ``around``; with ``quiet``, what it prints goes to stderr."""
    silenced: Any = contextlib.redirect_stdout(sys.stderr) if quiet else contextlib.nullcontext()
    with _uncompiled():
        tracing = torch_module("tilesmith.torch_ops.trace")
        trace = tracing.Trace()
        return TracedScript(trace, _status(tracing, script, arguments, trace, silenced, around))


@contextlib.contextmanager
def _uncompiled() -> Iterator[None]:
    """Have ``torch.compile`` do nothing: operators of a compiled graph cannot be seen, and the problems are the same.

    NOTE: PyTorch reads the variable once, when Dynamo is first imported.
    """
    name, module = "TORCH_COMPILE_DISABLE", "torch._dynamo.config"
    asked, imported = name in os.environ, module in sys.modules
    os.environ.setdefault(name, "1")
    try:
        yield
    finally:
        if not asked:
            del os.environ[name]
            if not imported and module in sys.modules:
                sys.modules[module].disable = False  # type: ignore[attr-defined]


def _status(
    tracing: Any, script: Path, arguments: Sequence[str], trace: Any, silenced: Any,
    around: contextlib.AbstractContextManager[Any],
) -> int:  # fmt: skip
    """The exit status of the script."""
    status = 0
    try:
        with silenced, around:
            tracing.run_traced(script, arguments, trace)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            note(end.code)
    except KeyboardInterrupt:
        status = 130
    except Exception:
        traceback.print_exc()
        status = 1
    return status


def torch_module(name: str) -> Any:
    """A module that needs PyTorch. Raises ``ArgumentError`` without it."""
    try:
        return import_whole(name)
    except ImportError as error:
        raise ArgumentError(
            f"the problems of a script are those of PyTorch ({error}); install it: pip install torch "
            "(without it, TILESMITH_LOG_CMD=1 prints the problems of Tilesmith's own calls)"
        ) from None
