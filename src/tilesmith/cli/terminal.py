"""Writes messages and progress to stderr; stores the moment from which a command's time limit counts."""

from __future__ import annotations

import itertools
import json
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click

from tilesmith import env
from tilesmith.errors import shortened
from tilesmith.ready.console import clock, live_console, live_settings
from tilesmith.ready.text_table import table
from tilesmith.ready.watch_lines import search_words
from tilesmith.tune.progress import Listener, Progress

__all__ = [
    "begin_command",
    "budget_start",
    "complain",
    "dump_json",
    "note",
    "paced",
    "print_json",
    "progress",
    "start_logging",
    "table",
    "transfer",
]

EVERY_S = 10.0  # between two lines about a search, where they stay
REFRESH_S = 0.5  # on a terminal, where they do not


def complain(message: str) -> None:
    """Write one line of bounded length to stderr, whatever characters the message has."""
    click.echo(f"tilesmith: {' '.join(shortened(message).split())}", err=True)


def note(message: str) -> None:
    """One line of progress on stderr."""
    click.echo(message, err=True)


def paced(every_s: float = EVERY_S) -> Callable[[str], None]:
    """Like ``note``, but lines that come within ``every_s`` seconds of one that was written are left out."""
    written = -math.inf

    def tell(message: str) -> None:
        nonlocal written
        if time.monotonic() - written >= every_s:
            written = time.monotonic()
            note(message)

    return tell


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


class Steps:
    """Shows the progress of a verb: call it with a line for each item done; ``search`` shows one search."""

    def __init__(self, done: Callable[[str], None], show: Callable[[str], None], every_s: float) -> None:
        self._done, self._show, self._every_s = done, show, every_s

    def __call__(self, text: str) -> None:
        self._done(text)

    @contextmanager
    def search(self, name: str, budget_s: float | None) -> Iterator[Listener]:
        """A listener for a search, which may be silent for long: its state is shown at regular times."""
        began, over, states = time.monotonic(), threading.Event(), [search_words(None)]
        budget = "" if budget_s is None else f" of {clock(budget_s)}"

        def listen(progress: Progress) -> None:
            states[0] = search_words(progress)

        def show() -> None:
            while not over.wait(self._every_s):
                self._show(f"{name}: {clock(time.monotonic() - began)}{budget}, {states[0]}")

        thread = threading.Thread(target=show, daemon=True)
        thread.start()
        try:
            yield listen
        finally:
            over.set()
            thread.join()
            self._show("")


@contextmanager
def progress(total: int, what: str) -> Iterator[Steps]:
    """``Steps`` of a verb: a bar on a terminal, one line an item elsewhere, and one each 10 seconds of a search."""
    console = live_console()
    if console is None:
        count = itertools.count(1)
        yield Steps(
            lambda text: note(f"[{next(count)}/{total}] {text}"), lambda text: note(text) if text else None, EVERY_S
        )
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar
    from rich.table import Column

    text_column = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))
    columns = (text_column, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=console, transient=False, **live_settings()) as bar:
        task = bar.add_task(what, total=total)

        def advance(text: str) -> None:
            bar.console.print(text, highlight=False, markup=False)
            bar.advance(task)

        yield Steps(advance, lambda text: bar.update(task, description=text or what), REFRESH_S)


@contextmanager
def transfer(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """A function for the bytes that have come, and those of the whole if they are known: a bar on a terminal."""
    console = live_console()
    if console is None:
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    text = TextColumn("{task.description}", markup=False)
    columns = (text, BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Bar(*columns, console=console, transient=True, **live_settings()) as bar:
        task = bar.add_task(shortened(what), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


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


@dataclass
class _Command:
    began: float | None = None


_command = _Command()


def begin_command(began: float | None = None) -> None:
    """Set the start of a command: now, or the start of its process (of ``time.monotonic``)."""
    _command.began = time.monotonic() if began is None else began


def budget_start() -> float:
    """The moment from which the next budget counts: the command's beginning, once; then now."""
    began, _command.began = _command.began, None
    return time.monotonic() if began is None else began
