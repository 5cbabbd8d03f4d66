"""One process for each GPU that works off JSON tasks, one line each, and answers each with a line.

Tasks go to whoever is free. A process that dies or is silent costs the task it was at; another takes its place.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
START_S = 120.0  # until the first answer of a process, beyond the task's own time

Task = dict


def environment(number: int, devices: int, each: int = 1) -> dict[str, str]:
    """Of one of ``each`` processes a GPU: one device alone, and a share of the host's cores."""
    cores = sorted(os.sched_getaffinity(0))
    mine = cores[number :: devices * each] or cores
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = visible.split(",") if visible else [str(i) for i in range(devices)]
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH", ""))))
    return {
        **os.environ, "CUDA_VISIBLE_DEVICES": names[number % devices], "WORKER_CORES": ",".join(map(str, mine)),
        "PYTHONPATH": path,
    }  # fmt: skip


def keep_to_my_cores() -> None:
    """In a process of ``environment``: everything that it starts shares its cores."""
    if mine := os.environ.get("WORKER_CORES"):
        os.sched_setaffinity(0, map(int, mine.split(",")))


def tasks_of_stdin() -> Iterator[Task]:
    """In the process: its tasks, until there are no more."""
    for line in sys.stdin:
        yield json.loads(line)


class WorkerPool:
    """``script`` is started once a GPU; ``log`` takes what its processes say on stderr.

    ``longest_s`` is how long a task may take before its process counts as hanging.
    """

    def __init__(self, script: Path, count: int, log: Path, longest_s: float) -> None:
        self._script, self._count, self._log, self._longest_s = script, count, log, longest_s
        self._lock = threading.Lock()

    def work(
        self, tasks: list[Task], took: Callable[[int, Task, dict], None], starts: Callable[[Task], bool]
    ) -> list[Task]:
        """Give every task to a process; ``took(ordinal, task, answer)`` gets what it answers, ``{"died": why}`` where
        it does not. A task is begun while ``starts(task)``; returns those that were not."""
        left = deque(tasks)
        with ThreadPoolExecutor(self._count) as threads:
            jobs = [threads.submit(self._one, ordinal, left, took, starts) for ordinal in range(self._count)]
        for job in jobs:
            job.result()
        return list(left)

    def _one(self, ordinal: int, left: deque, took: Callable, starts: Callable) -> None:
        process, fresh = None, True
        try:
            while True:
                with self._lock:
                    if not left or not starts(left[0]):
                        return
                    task = left.popleft()
                if process is None:
                    process, fresh = self._start(ordinal), True
                answer = self._ask(process, task, self._longest_s + (START_S if fresh else 0.0))
                fresh = False
                if "died" in answer:
                    process.kill()
                    process.wait()
                    process = None
                took(ordinal, task, answer)
        finally:
            if process is not None:
                process.stdin.close()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def _start(self, ordinal: int) -> subprocess.Popen:
        with open(f"{self._log}_{ordinal}.txt", "a") as log:
            return subprocess.Popen(
                [sys.executable, str(self._script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                env=environment(ordinal, self._count),
            )  # fmt: skip

    def _ask(self, process: subprocess.Popen, task: Task, limit_s: float) -> dict:
        try:
            process.stdin.write(json.dumps(task).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            return {"died": f"the process ended with {process.wait()}"}
        said, deadline = b"", time.monotonic() + limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not said.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return {"died": f"gave no result within {limit_s:.0f} s"}
                data = os.read(process.stdout.fileno(), 1 << 16)
                if not data:
                    return {"died": f"the process ended with {process.wait()}"}
                said += data
        return json.loads(said)
