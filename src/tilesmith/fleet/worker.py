"""Works on a task: searches a problem, or measures an answer of another machine, alone on its device."""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import lru_cache

from tilesmith.db.lines import line_of, read_line
from tilesmith.db.opening import open_database
from tilesmith.db.records import Record
from tilesmith.db.store import Database
from tilesmith.dispatch.locations import open_cache, target_of
from tilesmith.errors import (
    CompileError,
    FileFormatError,
    FleetError,
    NoSolutionError,
    OutOfTimeError,
    ProblemError,
    TilesmithError,
)
from tilesmith.fleet.checking import check_answer
from tilesmith.fleet.device_lock import WAIT_S, device_identity, device_lock
from tilesmith.fleet.executor import Tell
from tilesmith.fleet.outbox import Outbox, own_folder
from tilesmith.fleet.tasks import CHECK, TUNE, Parcel, Reply, Task, encode, read_task
from tilesmith.problems.keys import parse_key
from tilesmith.targets.cuda_driver import device_ordinal
from tilesmith.tune import session
from tilesmith.tune.process import Workers
from tilesmith.tune.progress import DONE, Listener, Progress
from tilesmith.tune.session import TuneResult

TELL_S = 1.0  # between two states of a search that are sent
LEFT_BEHIND_S = 30.0  # a parcel that still waits after so long goes with the next reply

#: Searches one task's problem on a device, and keeps what it finds in a database.
Search = Callable[[Task, str, Database, Listener], TuneResult]


def run_task(device: str, payload: bytes, tell: Tell) -> bytes:
    """Do one task. Whatever goes wrong stands in the reply."""
    return run_with(search, device, payload, tell)


def run_with(search: Search, device: str, payload: bytes, tell: Tell) -> bytes:
    """The same with a search of one's own."""
    try:
        task = read_task(payload)
        outbox = Outbox(task.run)
        outbox.forget(task.received)
        reply = _done(search, task, device, outbox, tell)
    except (NoSolutionError, CompileError, ProblemError, OutOfTimeError) as error:  # elsewhere it would be the same
        reply = Reply(error=str(error), final=True)
    except (TilesmithError, OSError, MemoryError) as error:
        reply = Reply(error=str(error) or type(error).__name__)
    return encode(reply)


def search(task: Task, device: str, database: Database, listen: Listener) -> TuneResult:
    """The search of ``tilesmith tune`` for a task's problem."""
    signature, target = parse_key(task.problem), target_of(task.target, None, device)
    return session.tune(
        signature, target, database=database, cache=open_cache(), strategy=task.strategy, max_trials=task.trials,
        max_seconds=task.seconds, seed=task.seed, external=task.external, first=task.first, progress=listen,
        device=max(0, device_ordinal(device)), workers=_workers(),
    )  # fmt: skip


def _done(search: Search, task: Task, device: str, outbox: Outbox, tell: Tell) -> Reply:
    if task.kind == TUNE:
        with device_lock(device, WAIT_S + 2 * (task.seconds or 0.0)):
            parcel = outbox.put(_tuned(search, task, device, tell))
        older = [each for each in outbox.waiting(LEFT_BEHIND_S) if each.name != parcel.name]
        return Reply((parcel, *older))
    if task.kind == CHECK:
        with device_lock(device):
            return Reply(checked=check_answer(task.problem, task.target, records_of(task.lines), device))
    return Reply(outbox.waiting())


def _tuned(search: Search, task: Task, device: str, tell: Tell) -> Parcel:
    last = 0.0

    def listen(progress: Progress) -> None:
        nonlocal last
        if progress.phase == DONE or time.monotonic() - last >= TELL_S:
            last = time.monotonic()
            tell(encode(progress))

    folder = own_folder()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with closing(open_database(folder / f"{device_identity(device)}.db")) as opened:
        database = opened.for_writing()
        result = search(task, device, database, listen)
        return Parcel(
            "", result.problem, result.target, "", tuple(_lines(database, result)), result.new_trials, result.failed,
            result.disturbed, result.seconds, result.ended, result.default.time_us if result.default else None,
        )  # fmt: skip


def _lines(database: Database, result: TuneResult) -> Iterable[str]:
    """All that is known of a problem, as sealed lines; the answers first."""
    problem, target = result.problem, result.target
    yield from (line_of("results", record) for record in result.ranking)
    yield from (line_of("trials", record) for record in database.trials(problem, target))
    found = database.search(problem, target)
    if found is not None:
        yield line_of("searches", found)


def records_of(lines: Iterable[str]) -> tuple[Record, ...]:
    """The answers among sealed lines. Raises ``FleetError`` for a line that is not as it was sealed."""
    try:
        found = [read_line(line) for line in lines]
    except FileFormatError as error:
        raise FleetError(f"a record that {error}") from None
    return tuple(each[1] for each in found if each is not None and isinstance(each[1], Record) and each[0] == "results")


@lru_cache(maxsize=1)
def _workers() -> Workers:
    """The measuring processes of this worker, kept from one problem to the next."""
    found = Workers()
    atexit.register(found.close)
    return found
