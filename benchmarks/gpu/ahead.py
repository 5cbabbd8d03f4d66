"""What cases need before a device is used: their kernels are chosen and compiled on all cores at once."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, TypeVar

from checks_worker import CACHE
from gpu_cases import Case, Kernels, draft_of, kernels_of, picked_row, watched_candidates

from tilesmith.errors import TilesmithError
from tilesmith.measure.device_check import can_check_on_device, sources_of_checks
from tilesmith.plan.records import Source
from tilesmith.problems.keys import parse_key
from tilesmith.targets.target import CudaTarget

REPORT_S = 10.0  # between two lines of progress
Task, Answer = TypeVar("Task"), TypeVar("Answer")


@dataclass(frozen=True)
class Compiled:
    """A case whose kernels are in the cache; ``error`` says why they are not. ``sources`` are their symbols."""

    case: Case
    kernels: Kernels
    sources: frozenset[str]
    error: str = ""


def compiled_row(row: list[Case], target: CudaTarget, build: bool = True) -> list[Compiled]:
    """Picks the kernel of a row and compiles it, with all that checks it on the device."""
    return [compiled(case, target, build) for case in picked_row(row, target)]


def compiled(case: Case, target: CudaTarget, build: bool = True) -> Compiled:
    found = draft_of(case, target)
    assert found is not None, "a case that has a pick"
    sources: list[Source] = list(found[2].sources)
    signature = parse_key(case.key)
    if case.part == "random" and can_check_on_device(signature):
        sources += sources_of_checks(signature, target)
    error = ""
    for source in dict.fromkeys(sources) if build else ():
        try:
            CACHE.get_or_build(source, target)
        except TilesmithError as found_error:
            error = error or f"{source.symbol}: {found_error}"
    return Compiled(case, kernels_of(case.key, found[2]), frozenset(source.symbol for source in sources), error)


def compiled_cases(cases: Sequence[Case], target: CudaTarget) -> list[Compiled]:
    return [compiled(case, target) for case in cases]


def candidates_of(key: str, target: CudaTarget) -> list[tuple[Case, Kernels]]:
    return watched_candidates(key, target)


def on_all_cores(
    what: str, work: Callable[[Task, CudaTarget], list[Answer]], tasks: Iterable[Task], target: CudaTarget,
    deadline: float,
) -> Iterator[Answer]:  # fmt: skip
    """The answers to all tasks as they come; those that are not begun at ``deadline`` (``time.monotonic``) have none.

    ``work`` is a function of a module: other processes call it.
    """
    waiting, left, began = list(tasks), 0, time.monotonic()
    cores = len(os.sched_getaffinity(0))
    total, done, said = len(waiting), 0, began
    waiting.reverse()
    with ProcessPoolExecutor(min(cores, max(1, total)), multiprocessing.get_context("spawn")) as pool:
        running: set[Future[Any]] = set()
        while waiting or running:
            while waiting and len(running) < 2 * cores and time.monotonic() < deadline:
                running.add(pool.submit(work, waiting.pop(), target))
            if not running:
                left = len(waiting)
                break
            ended, running = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
            for future in ended:
                done += 1
                yield from future.result()
            if time.monotonic() - said > REPORT_S:
                said = time.monotonic()
                print(f"{what}: {done} of {total}, {said - began:.0f} s", flush=True)
    rest = f", {left} left" if left else ""
    print(f"{what}: {done} of {total}{rest}, {time.monotonic() - began:.0f} s on {cores} cores", flush=True)
