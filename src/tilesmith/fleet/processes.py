"""Workers as processes of this machine, one for each device: ``--device all``."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from tilesmith.errors import FleetError
from tilesmith.fleet.executor import Event, Place, Replied, Told, Wanted
from tilesmith.fleet.survey import read_survey
from tilesmith.targets.detect import usable_cores
from tilesmith.targets.detect_cuda import cuda_devices

ALL = "all"  # the value of --device
START_S = 120.0  # for a process that imports and looks at its device, on a busy machine
RESTARTS = 5  # of one device's process
_TOLD, _REPLY = b"t", b"r"


def all_gpus() -> tuple[str, ...]:
    """``cuda:0`` and so on; ``LaunchError`` without a driver, ``FleetError`` without a GPU."""
    found = tuple(f"cuda:{device.ordinal}" for device in cuda_devices())
    if not found:
        raise FleetError("--device all: this machine has no GPU that CUDA sees")
    return found


@dataclass
class _Worker:
    device: str
    place: Place | None
    process: SpawnProcess
    pipe: Connection
    task: str = ""
    cores: frozenset[int] = frozenset()
    starts: int = 1


class LocalProcesses:
    """An ``Executor`` of one process for each device.

    The machine's cores are divided among the processes, so that compilers of one leave the others' host threads alone.
    All use one artifact cache: a kernel that one has compiled is there for the others.
    """

    ahead = False

    def __init__(self, devices: Sequence[str], wanted: Wanted) -> None:
        self._wanted = wanted
        self._spawn = multiprocessing.get_context("spawn")
        self._serial = 0
        self._events: list[Event] = []
        shares = share_cores(len(devices))
        self._workers = [self._start(device, cores) for device, cores in zip(devices, shares, strict=True)]
        self._await_all()

    def places(self) -> tuple[Place, ...]:
        self._take(0.0)
        for index, worker in enumerate(self._workers):
            if not worker.process.is_alive():
                self._workers[index] = self._again(worker)
        return tuple(worker.place for worker in self._workers if worker.place is not None)

    def begin(self, place: Place, task: str, payload: bytes) -> None:
        for worker in self._workers:
            if worker.place == place:
                worker.task = task
                with contextlib.suppress(OSError, ValueError):  # it has died, which ``places`` tells
                    worker.pipe.send_bytes(payload)

    def wait(self, seconds: float) -> tuple[Event, ...]:
        if not self._events:
            self._take(seconds)
        found, self._events = tuple(self._events), []
        return found

    def drop(self, place: Place) -> None:
        for index, worker in enumerate(self._workers):
            if worker.place == place:
                self._workers[index] = self._again(worker)

    def close(self) -> None:
        for worker in self._workers:
            worker.pipe.close()
            worker.process.kill()
        for worker in self._workers:
            worker.process.join(5)

    # --- processes ------------------------------------------------------------------------------------------------

    def _start(self, device: str, cores: frozenset[int]) -> _Worker:
        here, there = self._spawn.Pipe()
        process = self._spawn.Process(target=_serve, args=(there, self._wanted, device, cores), daemon=True)
        process.start()
        there.close()
        return _Worker(device, None, process, here, cores=cores)

    def _again(self, worker: _Worker) -> _Worker:
        """A process in the place of one that has died or hangs; no more after ``RESTARTS``."""
        worker.process.kill()
        worker.pipe.close()
        if worker.starts > RESTARTS:
            worker.place = None
            return worker
        fresh = self._start(worker.device, worker.cores)
        fresh.starts = worker.starts + 1
        return fresh

    def _await_all(self) -> None:
        ends = time.monotonic() + START_S
        while any(worker.place is None for worker in self._workers) and time.monotonic() < ends:
            try:
                self._take(0.2)
            except FleetError:
                self.close()
                raise
            dead = next((worker for worker in self._workers if not worker.process.is_alive()), None)
            if dead is not None:
                self.close()
                raise FleetError(f"the worker of {dead.device} ended with status {dead.process.exitcode} at its start")
        if any(worker.place is None for worker in self._workers):
            self.close()
            raise FleetError(f"the workers did not start within {START_S:.0f} s")

    def _take(self, seconds: float) -> None:
        """Read what has come from the processes; the first message of each says what it is."""
        pipes = {worker.pipe: worker for worker in self._workers if not worker.pipe.closed}
        for pipe in wait(list(pipes), seconds):
            worker = pipes[pipe]  # type: ignore[index]  # only pipes were waited for
            try:
                while worker.pipe.poll():
                    self._read(worker, worker.pipe.recv_bytes())
            except (EOFError, OSError):  # it has died
                with contextlib.suppress(OSError):
                    worker.process.join(1)

    def _read(self, worker: _Worker, message: bytes) -> None:
        if worker.place is None:
            try:
                found = read_survey(message, self._wanted.family)
            except FleetError as error:
                raise FleetError(f"{worker.device} cannot be used: {error}") from None
            self._serial += 1
            worker.place = Place(f"{worker.device}/{self._serial}", found.host, found.device, found.target)
        elif worker.task:
            kind, payload = message[:1], message[1:]
            self._events.append(Told(worker.task, payload) if kind == _TOLD else Replied(worker.task, payload))
            if kind == _REPLY:
                worker.task = ""


def share_cores(count: int) -> tuple[frozenset[int], ...]:
    """The cores that this process may use, in ``count`` parts; all of them for each where there are too few."""
    if not hasattr(os, "sched_getaffinity"):
        return (frozenset(),) * count
    cores = sorted(os.sched_getaffinity(0))
    if count < 2 or len(cores) < 2 * count or usable_cores() < 2 * count:
        return (frozenset(cores),) * count
    return tuple(frozenset(cores[len(cores) * i // count : len(cores) * (i + 1) // count]) for i in range(count))


def _serve(pipe: Connection, wanted: Wanted, device: str, cores: frozenset[int]) -> None:
    """A worker's process: one task after the other, until the client closes the pipe or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the client, which ends this process
    if cores:
        os.sched_setaffinity(0, cores)
    pipe.send_bytes(wanted.look(device, wanted.threads))
    with contextlib.suppress(EOFError, OSError):
        while True:
            payload = pipe.recv_bytes()
            reply = wanted.run(device, payload, lambda told: pipe.send_bytes(_TOLD + told))
            pipe.send_bytes(_REPLY + reply)
