"""The abilities of a stream: a terminal that may be drawn on, or plain lines; and the width of a line."""

from __future__ import annotations

import os
import sys
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 80  # columns of what is no terminal
LEAST_WIDTH = 40
DUMB = ("", "dumb", "unknown")


def live_console(stream: IO[str] | None = None) -> Console | None:
    """A console that draws on ``stream`` (default: stderr). None where only plain lines may go.

    Drawn on are terminals, unless TERM names one without a cursor or NO_COLOR is set: whoever sets it reads the output
    with something that shows control characters as they are.
    """
    stream = sys.stderr if stream is None else stream
    if stream is None or not stream.isatty():
        return None
    if os.environ.get("NO_COLOR") or os.environ.get("TERM", "") in DUMB:
        return None
    from rich.console import Console

    return Console(file=stream, highlight=False, markup=False, emoji=False)


def live_settings() -> dict[str, Any]:
    """Options of rich's live displays with which output to stdout still reaches a file or pipe."""
    return {"redirect_stdout": sys.stdout is not None and sys.stdout.isatty()}


def width_of(stream: IO[str] | None) -> int:
    """Columns of a line: those of a terminal, else COLUMNS, else 80."""
    columns = 0
    try:
        if stream is not None and stream.isatty():
            columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    if not columns:
        given = os.environ.get("COLUMNS", "")
        columns = int(given) if given.isascii() and given.isdigit() else WIDTH
    return max(LEAST_WIDTH, columns)


def cut(text: str, width: int) -> str:
    """At most ``width`` characters; dots stand for what is left out."""
    return text if len(text) <= width else text[: max(0, width - 3)].rstrip() + "..."[: max(0, width)]


def clock(seconds: float) -> str:
    """Minutes and seconds, with hours where there are some: ``0:07``, ``1:02:03``."""
    whole = max(0, round(seconds))
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"
