"""Shows the tuning of a list: drawn on a terminal, a line each ten seconds on anything else."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from tilesmith.ready.console import clock, live_console, live_settings, width_of
from tilesmith.ready.watch import Watch
from tilesmith.ready.watch_lines import counts, end_line, gain_words, now_words, state_line, time_left
from tilesmith.tune.progress import Ended, Event, Watcher

if TYPE_CHECKING:
    from rich.console import Console, Group

EVERY_S = 10.0  # between two lines, where they stay
PER_S = 4  # pictures a second, where they do not
MOST_WORKERS = 8  # that are drawn


@contextmanager
def watching(
    watch: Watch, *, stream: IO[str] | None = None, tell: Callable[[str], None] | None = None,
    ends: bool = True, every_s: float | None = None,
) -> Iterator[Watcher]:  # fmt: skip
    """Inside, events that the watcher gets are shown on ``stream`` (default: stderr) and folded into ``watch``.

    ``tell`` writes a line where nothing can be drawn (default: to the stream). With ``ends`` every problem that ends
    leaves a line; else, where nothing can be drawn, only the state is told, each ``every_s`` seconds (default: 10).
    """
    stream = sys.stderr if stream is None else stream
    console = live_console(stream)
    if console is not None:
        with _drawn(watch, console, ends) as watcher:
            yield watcher
        return
    write = tell if tell is not None else _writer(stream)
    over = threading.Event()

    def listen(event: Event) -> None:
        watch(event)
        if ends and isinstance(event, Ended) and event.problem in watch.rows:
            write(end_line(watch, watch.rows[event.problem], width_of(stream)))

    def repeat() -> None:
        while not over.wait(EVERY_S if every_s is None else every_s):
            write(state_line(watch, width_of(stream)))

    thread = threading.Thread(target=repeat, daemon=True, name="tilesmith-watch")
    thread.start()
    try:
        yield listen
    finally:
        over.set()
        thread.join()


def _writer(stream: IO[str] | None) -> Callable[[str], None]:
    def write(line: str) -> None:
        if stream is not None:
            stream.write(f"{line}\n")
            stream.flush()

    return write


@contextmanager
def _drawn(watch: Watch, console: Console, ends: bool) -> Iterator[Watcher]:
    from rich.live import Live

    def picture() -> Group:
        return _picture(watch, console.width)

    live = Live(
        get_renderable=picture, console=console, refresh_per_second=PER_S, transient=True, **live_settings()
    )  # fmt: skip

    def listen(event: Event) -> None:
        watch(event)
        if ends and isinstance(event, Ended) and event.problem in watch.rows:
            console.print(end_line(watch, watch.rows[event.problem], console.width), soft_wrap=True)
        live.refresh()

    with live:
        yield listen


def _picture(watch: Watch, width: int) -> Group:
    """Two lines for each problem that is at work, then the whole list."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    lines: list[Any] = []
    for one in watch.now[:MOST_WORKERS]:
        row, began = watch.rows[one.task.key], one.began
        where = f" on {began.worker}" if began.worker else ""
        of = "" if began.budget_s is None else f" of {clock(began.budget_s)}"
        spent = clock(watch.elapsed_s(one))
        lines.append(Text(f"{one.task.name}{where}", style="bold", no_wrap=True, overflow="ellipsis"))
        words = now_words(one, row)
        lines.append(Text(f"  {spent}{of}: {words}", no_wrap=True, overflow="ellipsis"))
    share = watch.share
    left = time_left(watch)
    text = f"{counts(watch)}{gain_words(watch)}, {clock(watch.spent_s)} gone{f', {left}' if left else ''}"
    bar = ProgressBar(total=1.0, completed=share, width=max(8, min(30, width // 4)))
    foot = Table.grid(padding=(0, 1))
    foot.add_row(bar, Text(text, no_wrap=True, overflow="ellipsis"))
    return Group(*lines, foot)
