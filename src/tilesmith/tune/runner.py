"""The session's side of the worker process: asks it to measure, and replaces it when it dies or does not answer."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from tilesmith.errors import LaunchError
from tilesmith.measure.timing import Timing
from tilesmith.tune.clock import Clock, TimeOverError
from tilesmith.tune.messages import (
    Certified,
    Certify,
    Load,
    Loaded,
    Race,
    Raced,
    Ready,
    Refused,
    Reply,
    Request,
    Setup,
    Unload,
)
from tilesmith.tune.process import WorkerDiedError, WorkerProcess, Workers

START_S = 60.0  # until a device's process is up, which takes 14 s on some hosts
SETUP_S = 600.0  # for the oracle of a large problem
RELOAD_S = 60.0
LAST_WAIT_S = 0.2  # for the end of a worker whose search is over
DEATHS = 3  # of one worker while it starts or sets up: then nothing can be measured here


@dataclass
class RaceResult:
    """The times that a race measured, and the reason for each plan without one."""

    timings: dict[str, Timing] = field(default_factory=dict)
    failed: dict[str, Refused] = field(default_factory=dict)


class Runner:
    """Measures plans of one problem in a separate process. A context manager; ``folder`` is for its files.

    The process comes from ``workers`` and goes back there, if it is well. A request that is under way when ``clock`` is
    over is ended with the process (``TimeOverError``); where the clock is moved, the next one starts another.
    """

    def __init__(
        self, problem: str, threads: int, seed: int, folder: Path, device: int = -1, cache: Path | None = None,
        workers: Workers | None = None, clock: Clock | None = None,
    ) -> None:  # fmt: skip
        self._setup = Setup(problem, seed, str(folder / "oracle.npy"), device, str(cache or folder / "cache"))
        self._threads = threads
        self._workers = workers
        self._clock = clock or Clock()
        #: Seconds of the longest check so far.
        self.check_s = 0.0
        self.certify_s = 0.0
        #: Seconds that a plan takes in a round of a race, at most so far.
        self.round_s = 0.0
        self._worker: WorkerProcess | None = None
        self._ready = False
        self._loaded: dict[str, Load] = {}
        self._interrupted = False

    def __enter__(self) -> Runner:
        device = self._setup.device
        self._begin(WorkerProcess(device) if self._workers is None else self._workers.take(device))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        worker, self._worker = self._worker, None
        device, workers = self._setup.device, self._workers
        late = kind is not None and issubclass(kind, TimeOverError)
        if worker is not None and workers is not None and self._ready and kind is None:
            workers.give(device, worker)
            return
        if worker is not None:
            worker.kill(LAST_WAIT_S)
        if workers is not None and device >= 0 and (kind is None or late):
            workers.prepare(device)

    # --- requests -------------------------------------------------------------------------------------------------

    def load(self, request: Load, limit_s: float) -> Loaded | Refused:
        """Check one plan and time a few calls; a crash, or no answer within ``limit_s`` seconds, is a refusal."""
        began = time.monotonic()
        try:
            reply = self._ask(request, limit_s)
        except WorkerDiedError as death:
            self._replace()
            return Refused(str(death))
        if isinstance(reply, Loaded):
            self._loaded[request.name] = request
            if request.plan:
                self.check_s = max(self.check_s, time.monotonic() - began)
            return reply
        assert isinstance(reply, Refused)
        if reply.last:
            self._replace()
        return reply

    def certify(self, name: str, limit_s: float) -> Refused | None:
        """Check a loaded plan as one must be checked that may be chosen; why it may not be, if so."""
        if name not in self._loaded:
            return Refused("it was lost with the worker")
        began = time.monotonic()
        try:
            reply = self._ask(Certify(name), limit_s)
        except WorkerDiedError as death:
            del self._loaded[name]
            self._replace()
            return Refused(str(death))
        self.certify_s = max(self.certify_s, time.monotonic() - began)
        if isinstance(reply, Certified):
            return None
        assert isinstance(reply, Refused)
        self._forget(name, reply)
        return reply

    def race(
        self, names: Sequence[str], rounds: int, budget_s: float, limit_s: float, drop_ratio: float | None = None,
        compares: bool = False,
    ) -> RaceResult:  # fmt: skip
        """Time loaded plans, interleaved. A plan that kills the worker is removed, and the remaining plans are timed
        again.

        With ``compares`` a plan whose numbers are wrong after its last call is removed too.
        """
        result = RaceResult()
        running = [name for name in names if name in self._loaded]
        result.failed = {name: Refused("it was lost with the worker") for name in names if name not in self._loaded}
        while running:
            self._await_ready()
            assert self._worker is not None
            self._worker.report.write("")
            began = time.monotonic()
            try:
                reply = self._ask(Race(tuple(running), rounds, budget_s, self._threads, drop_ratio, compares), limit_s)
            except WorkerDiedError as death:
                culprit = self._worker.report.read()
                # Without a name every plan is suspect: better no answer than an endless race.
                out = [culprit] if culprit in running else list(running)
                result.failed.update(dict.fromkeys(out, Refused(str(death))))
                for name in out:
                    self._loaded.pop(name, None)
                self._replace()
                running = [name for name in running if name not in out and name in self._loaded]
                continue
            if isinstance(reply, Raced):
                self.round_s = max(self.round_s, (time.monotonic() - began) / (rounds * len(running)))
                result.timings = {name: timing for name, timing in reply.timings.items() if name not in reply.wrong}
                result.failed.update(reply.wrong)
                self.unload(tuple(reply.wrong))
            else:
                assert isinstance(reply, Refused)
                result.failed.update(dict.fromkeys(running, reply))
            break
        return result

    def unload(self, names: Sequence[str]) -> None:
        """Give the memory of plans back."""
        gone = tuple(name for name in names if self._loaded.pop(name, None) is not None)
        if gone and self._worker is not None:
            # A dead worker is met at the next request.
            with contextlib.suppress(WorkerDiedError):
                self._worker.send(Unload(gone))

    @property
    def loaded(self) -> tuple[str, ...]:
        return tuple(self._loaded)

    def recover(self) -> None:
        """After an interruption: a worker that owes no reply, with all that was loaded."""
        if self._interrupted:
            self._interrupted = False
            self._replace()

    def await_up(self) -> float:
        """Wait until the process of a device is up; the moment of ``time.monotonic`` when it was.

        The clock does not end this wait. Raises ``LaunchError`` if the process will not be up.
        """
        deadline, deaths = time.monotonic() + START_S, 0
        while True:
            assert self._worker is not None
            try:
                return self._worker.await_up(max(0.0, deadline - time.monotonic()))
            except WorkerDiedError as death:
                deaths += 1
                if self._worker.alive or deaths == DEATHS:
                    raise LaunchError(f"nothing can be measured: the worker process {death}") from None
                self._kill()
                self._begin(WorkerProcess(self._setup.device))

    def await_ready(self) -> None:
        """Wait until the worker has the problem's arguments and oracle. Raises ``LaunchError`` if it never will."""
        self._await_ready()

    # --- the process ----------------------------------------------------------------------------------------------

    def _forget(self, name: str, refused: Refused) -> None:
        """Give back a plan that is refused, or replace a worker that has ended with it."""
        if refused.last:
            self._loaded.pop(name, None)
            self._replace()
        else:
            self.unload([name])

    def _begin(self, worker: WorkerProcess) -> None:
        self._worker, self._ready = worker, False
        with contextlib.suppress(WorkerDiedError):  # it is met at the next request
            worker.send(self._setup)

    def _replace(self) -> None:
        """A new worker with the plans that were loaded in the old one."""
        wanted, done = dict(self._loaded), False
        while not done:
            self._kill()
            self._begin(WorkerProcess(self._setup.device))
            self._loaded = {}
            done = True
            for name, request in list(wanted.items()):
                try:
                    reply = self._ask(request, RELOAD_S)
                except WorkerDiedError:
                    # It ran well once; whatever this is, it is not worth another try. The others must load again.
                    del wanted[name]
                    done = False
                    break
                if isinstance(reply, Loaded):
                    self._loaded[name] = request
                elif isinstance(reply, Refused) and reply.last:
                    del wanted[name]
                    done = False
                    break

    def _ask(self, request: Request, limit_s: float) -> Reply:
        self._await_ready()
        assert self._worker is not None
        try:
            self._worker.send(request)
            return self._receive(limit_s)
        except KeyboardInterrupt:  # a reply that comes later would be taken for that of the next request
            self._interrupted = True
            raise

    def _receive(self, limit_s: float) -> Reply:
        """The worker's reply. Raises ``WorkerDiedError``; ``TimeOverError`` where the clock was the shorter limit."""
        assert self._worker is not None
        try:
            return self._worker.receive(max(0.0, min(limit_s, self._clock.left_s())))
        except WorkerDiedError:
            if self._clock.over and self._worker.alive:
                self._kill()
                raise TimeOverError from None
            raise

    def _await_ready(self) -> None:
        if self._clock.over:
            raise TimeOverError
        if self._worker is None:  # it was ended by the clock, which has been moved since
            self._replace()
        for attempt in range(DEATHS):
            if self._ready:
                return
            assert self._worker is not None
            try:
                reply = self._receive(SETUP_S)
            except WorkerDiedError as death:
                if attempt == DEATHS - 1:
                    raise LaunchError(f"nothing can be measured: the worker process {death}") from None
                self._kill()
                self._begin(WorkerProcess(self._setup.device))
                continue
            if isinstance(reply, Refused):
                raise LaunchError(f"nothing can be measured: {reply.reason}")
            self._ready = isinstance(reply, Ready)

    def _kill(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
