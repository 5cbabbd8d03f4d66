"""What is written besides data: messages and progress, on stderr alone."""

from __future__ import annotations

import json
import logging
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from tilesmith import env
from tilesmith.errors import shortened


def complain(message: str) -> None:
    """One line on stderr, whatever the message holds, and of bounded length."""
    click.echo(f"tilesmith: {' '.join(shortened(message).split())}", err=True)


def note(message: str) -> None:
    """One line of progress on stderr."""
    click.echo(message, err=True)


def print_json(value: object) -> None:
    """One JSON value on one line of stdout; numbers that JSON lacks become null."""
    click.echo(json.dumps(_plain(value), allow_nan=False))


def dump_json(value: object) -> str:
    """The same, indented, for files."""
    return json.dumps(_plain(value), allow_nan=False, indent=1) + "\n"


def _plain(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns of text, padded; numbers to the right."""
    text = [[_cell(value) for value in row] for row in rows]
    widths = [max(len(line[i]) for line in [list(headers), *text]) for i in range(len(headers))]
    numeric = [all(isinstance(row[i], int | float | None) for row in rows) and bool(rows) for i in range(len(headers))]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, numeric, strict=True)
        )
        return "  ".join(padded).rstrip()

    return "\n".join([line(headers), *(line(row) for row in text)])


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@contextmanager
def progress(total: int, what: str) -> Iterator[Any]:
    """A callable ``step(text)`` for each item done: a bar on a terminal, one line an item elsewhere."""
    if not sys.stderr.isatty():
        done = 0

        def step(text: str) -> None:
            nonlocal done
            done += 1
            note(f"[{done}/{total}] {text}")

        yield step
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=False) as bar:
        task = bar.add_task(what, total=total)

        def advance(text: str) -> None:
            bar.console.print(text, highlight=False, markup=False)
            bar.advance(task)

        yield advance


class _Stderr(logging.Handler):
    """To what stderr is when a message comes."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(self.format(record), err=True)


def start_logging() -> None:
    """Send the package's messages to stderr, one line each, at the level of TILESMITH_LOG."""
    logger = logging.getLogger("tilesmith")
    if not logger.handlers:
        handler = _Stderr()
        handler.setFormatter(logging.Formatter("tilesmith: %(levelname)s: %(message)s"))
        logger.addHandler(handler)
    logger.setLevel(env.LOG.get().upper())
