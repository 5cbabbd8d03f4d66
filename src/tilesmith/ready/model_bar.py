"""Shows the tuning of a model on a terminal: a bar with the time left, the gain so far and what is done now."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

from tilesmith.ready.model_records import Listener, ModelProgress


def shown(state: ModelProgress) -> str:
    """The state in a line."""
    gain = f", {state.gain} so far" if state.gain else ""
    left = max(0.0, state.budget_s - state.seconds)
    return f"{state.measured}/{state.problems} problems{gain}, {left:.0f} s left: {state.doing}"


class Lines:
    """A listener that writes a line at most each ``every_s`` seconds."""

    def __init__(self, write: Callable[[str], None], every_s: float) -> None:
        self._write, self._every_s, self._next = write, every_s, 0.0

    def __call__(self, state: ModelProgress) -> None:
        if state.seconds >= self._next:
            self._next = state.seconds + self._every_s
            self._write(shown(state))


@contextmanager
def model_bar(stream: IO[str] | None = None) -> Iterator[Listener]:
    """A listener that draws on ``stream`` (default: stderr) if that is a terminal, and does nothing elsewhere."""
    stream = sys.stderr if stream is None else stream
    if stream is None or not stream.isatty():
        yield lambda state: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar
    from rich.table import Column

    text = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))
    with Bar(BarColumn(bar_width=20), text, console=Console(file=stream), transient=True) as bar:
        task = bar.add_task("", total=1.0)

        def show(state: ModelProgress) -> None:
            share = min(1.0, state.seconds / state.budget_s) if state.budget_s else 1.0
            bar.update(task, completed=share, description=shown(state))

        yield show
