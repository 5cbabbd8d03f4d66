"""``tilesmith verify``: the numbers of problems against a float64 reference."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

import click

from tilesmith import env
from tilesmith.cli.every_gpu import ALL, LATE_S, Tell, on_every_gpu, one_of, received, sent
from tilesmith.cli.options import (
    PROBLEMS,
    Number,
    devices_option,
    dtype_option,
    json_flag,
    long_flag,
    mode_option,
    problems_argument,
    seed_option,
    threads_option,
)
from tilesmith.cli.problem_list import Item, read_problems
from tilesmith.cli.terminal import complain, dump_json, note, print_json, print_wrapped, progress
from tilesmith.dispatch.launchable import get_launchable
from tilesmith.dispatch.locations import target_of
from tilesmith.dispatch.measuring import check_launchable, check_launchable_specials
from tilesmith.errors import CompileError, LaunchError, NoSolutionError, PlanError
from tilesmith.measure.accuracy import Accuracy
from tilesmith.problems.work import bytes_moved, flops
from tilesmith.targets.detect import usable_cores

Row = dict[str, Any]
COPIES: Final = 5  # of a problem's tensors: as drawn, laid between pages, with NaN and Inf, in other layouts
BUDGET_BYTES: Final = 4e9


@click.command("verify", help="Check the numbers of problems against a float64 reference.", **PROBLEMS)
@problems_argument
@click.option("--max-gflop", type=Number(0), help="Leave out what is larger, and say how many were left out.")
@click.option("--specials", is_flag=True, help="Also plant NaN and Inf in each operand and follow where they go.")
@devices_option
@threads_option
@mode_option
@seed_option
@dtype_option
@long_flag
@json_flag
def command(
    words: tuple[str, ...], max_gflop: float | None, specials: bool, device: str, threads: int | None,
    mode: str | None, seed: int, dtype: str | None, whole: bool, as_json: bool,
) -> int:  # fmt: skip
    listing = read_problems(words, dtype or "")
    chosen = [i for i in listing.items if max_gflop is None or flops(i.signature) <= max_gflop * 1e9]
    left_out = len(listing.items) - len(chosen)
    # Numbers do not depend on speed: unless a mode is asked for, nothing is measured.
    mode = mode or (env.FIND_MODE.get() if env.FIND_MODE.is_set else "fast")
    target_of(None, threads, one_of(device))
    failed = 0
    with progress(len(chosen), "verify") as step:
        rows = (
            _on_every_gpu(chosen, {"threads": threads, "mode": mode, "seed": seed, "specials": specials})
            if device == ALL
            else _in_parallel(chosen, lambda item: _check(item, device, threads, mode, seed, specials), mode)
        )
        for item, row in rows:
            if row["status"] == "failed":
                failed += 1
                complain(f"{item}: {row['reason']}")
            step(f"{row['status']} {row['solver'] or '-'} {item.short}")
            if as_json:
                print_json(row)
            else:
                print_wrapped(_line(row, f"{item}" if whole else item.short))
    done = len(chosen) - failed
    note(f"{done} verified, {failed} failed, {left_out} left out (--max-gflop), {listing.bad} bad lines")
    return listing.status or (1 if failed else 0)


def _on_every_gpu(items: Sequence[Item], options: dict[str, Any]) -> Iterator[tuple[Item, Row]]:
    """Each problem on the next GPU that is free."""
    for index, reply, reason in on_every_gpu(verify_here, [sent(item, options) for item in items], LATE_S):
        item = items[index]
        yield item, _row_of(item, "", "", None, reason) if reason else json.loads(reply)


def verify_here(device: str, payload: bytes, tell: Tell) -> bytes:
    """Verifies one problem, in the process of one GPU."""
    item, options = received(payload)
    return dump_json(_check(item, device, **options)).encode()


def _in_parallel(items: Sequence[Item], check: Callable[[Item], Row], mode: str) -> Iterator[tuple[Item, Row]]:
    """Run ``check`` for each item, in order; several at a time if nothing is measured and the memory suffices."""
    workers = usable_cores() if mode in ("fast", "strict") else 1
    budget = MemoryBudget(BUDGET_BYTES)

    def run(item: Item) -> Row:
        with budget.taken(COPIES * bytes_moved(item.signature)):
            return check(item)

    pool = ThreadPoolExecutor(workers)
    try:
        # Few are begun ahead of the one that is waited for, so that results come as they are made.
        waiting: deque[tuple[Item, Future[Row]]] = deque()
        for item in items:
            waiting.append((item, pool.submit(run, item)))
            while len(waiting) > 2 * workers or (waiting and waiting[0][1].done()):
                first, future = waiting.popleft()
                yield first, future.result()
        while waiting:
            first, future = waiting.popleft()
            yield first, future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


class MemoryBudget:
    """Memory budget of tasks that run at the same time. A task that needs more than the whole budget runs alone."""

    def __init__(self, size: float) -> None:
        self._size = size
        self._free = size
        self._changed = threading.Condition()

    @contextmanager
    def taken(self, wanted: float) -> Iterator[None]:
        """``wanted`` bytes for as long as the block runs; waits until they are free."""
        wanted = min(wanted, self._size)
        with self._changed:
            self._changed.wait_for(lambda: self._free >= wanted)
            self._free -= wanted
        try:
            yield
        finally:
            with self._changed:
                self._free += wanted
                self._changed.notify_all()


def _line(row: Row, problem: str) -> str:
    numbers = f"{row['error']:.3g} <= {row['bound']:.3g}" if row["bound"] is not None else "not run"
    if row["status"] == "failed" and row["bound"] is not None:
        numbers = f"{row['error']:.3g}, bound {row['bound']:.3g}"
    return f"{row['status']:6} {row['solver'] or '-'}: {problem}: {numbers}"


def _check(item: Item, device: str, threads: int | None, mode: str | None, seed: int, specials: bool) -> Row:
    solver = config = ""
    verdict: Accuracy | None = None
    try:
        launch = get_launchable(item.signature, device=device, threads=threads, mode=mode)
        solver, config = launch.solver, launch.config
        verdict = check_launchable(launch, seed)
        if verdict.ok and specials:
            verdict = check_launchable_specials(launch, seed)
    except (NoSolutionError, CompileError, LaunchError, PlanError) as error:
        reason = str(error)
    else:
        reason = verdict.message
    return _row_of(item, solver, config, verdict, reason)


def _row_of(item: Item, solver: str, config: str, verdict: Accuracy | None, reason: str) -> Row:
    return {
        **item.row, "solver": solver,
        "config": config, "status": "ok" if verdict is not None and verdict.ok else "failed",
        "reason": reason, "error": verdict.error if verdict is not None else None,
        "bound": verdict.bound if verdict is not None else None,
    }  # fmt: skip
