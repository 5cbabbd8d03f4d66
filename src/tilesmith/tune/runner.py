"""The session's side of the worker process: asks it to measure, and replaces it when it dies or does not answer."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from tilesmith.errors import LaunchError
from tilesmith.measure.timing import Timing
from tilesmith.tune.messages import (
    Load,
    Loaded,
    LoadLibrary,
    Race,
    Raced,
    Ready,
    Refused,
    Reply,
    Request,
    Setup,
    Unload,
    frame,
    take_reply,
)
from tilesmith.tune.note import Note

SETUP_S = 600.0  # for the oracle of a large problem
RELOAD_S = 60.0
DEATHS = 3  # of one worker while it sets up: then nothing can be measured here


class _WorkerDiedError(Exception):
    """The worker crashed or did not answer; the message says which."""


@dataclass
class Heat:
    """What a race found: times, and why some have none."""

    timings: dict[str, Timing] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


class Runner:
    """Measures plans of one problem in a process of their own. A context manager; ``folder`` is for its files."""

    def __init__(
        self, problem: str, threads: int, seed: int, folder: Path, device: int = -1, cache: Path | None = None
    ) -> None:
        self._setup = Setup(problem, seed, str(folder / "oracle.npy"), device, str(cache or folder / "cache"))
        self._threads = threads
        self._note_path = folder / "note"
        self._note = Note(self._note_path)
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = bytearray()
        self._ready = False
        self._loaded: dict[str, Load | LoadLibrary] = {}
        self.restarts = 0

    def __enter__(self) -> Runner:
        self._spawn()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill()

    # --- requests -------------------------------------------------------------------------------------------------

    def load(self, name: str, plan: bytes, artifacts: Sequence[Path], limit_s: float) -> Loaded | Refused:
        """Check one plan and time a few calls; a crash, or no answer within ``limit_s`` seconds, is a refusal."""
        return self._load(Load(name, plan, tuple(map(str, artifacts))), limit_s)

    def load_library(self, name: str, library: str, config: str, limit_s: float) -> Loaded | Refused:
        """The same for PyTorch's own kernel."""
        return self._load(LoadLibrary(name, library, config), limit_s)

    def _load(self, request: Load | LoadLibrary, limit_s: float) -> Loaded | Refused:
        try:
            reply = self._ask(request, limit_s)
        except _WorkerDiedError as death:
            self._replace()
            return Refused(str(death))
        if isinstance(reply, Loaded):
            self._loaded[request.name] = request
            return reply
        assert isinstance(reply, Refused)
        return reply

    def race(
        self, names: Sequence[str], rounds: int, budget_s: float, limit_s: float, drop_ratio: float | None = None
    ) -> Heat:
        """Time loaded plans, interleaved. Who kills the worker is out, and the others start again."""
        heat = Heat()
        running = [name for name in names if name in self._loaded]
        heat.failed = {name: "it was lost with the worker" for name in names if name not in self._loaded}
        while running:
            self._note.write("")
            try:
                reply = self._ask(Race(tuple(running), rounds, budget_s, self._threads, drop_ratio), limit_s)
            except _WorkerDiedError as death:
                culprit = self._note.read()
                # Without a name nobody can be spared: better no answer than an endless one.
                out = [culprit] if culprit in running else list(running)
                heat.failed.update(dict.fromkeys(out, str(death)))
                for name in out:
                    self._loaded.pop(name, None)
                self._replace()
                running = [name for name in running if name not in out and name in self._loaded]
                continue
            if isinstance(reply, Raced):
                heat.timings = reply.timings
            else:
                assert isinstance(reply, Refused)
                heat.failed.update(dict.fromkeys(running, reply.reason))
            break
        return heat

    def unload(self, names: Sequence[str]) -> None:
        """Give the memory of plans back."""
        gone = tuple(name for name in names if self._loaded.pop(name, None) is not None)
        if gone:
            # A dead worker is met at the next request.
            with contextlib.suppress(_WorkerDiedError):
                self._send(Unload(gone))

    @property
    def loaded(self) -> tuple[str, ...]:
        return tuple(self._loaded)

    # --- the process ----------------------------------------------------------------------------------------------

    def _spawn(self) -> None:
        package = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH", ""))))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tilesmith.tune.worker", str(self._note_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C is for the session, which then ends the worker
        )
        self._buffer.clear()
        self._ready = False
        with contextlib.suppress(_WorkerDiedError):
            self._send(self._setup)

    def _replace(self) -> None:
        """A new worker with the plans that were loaded in the old one."""
        wanted, done = dict(self._loaded), False
        while not done:
            self._kill()
            self.restarts += 1
            self._spawn()
            self._loaded = {}
            done = True
            for name, request in list(wanted.items()):
                try:
                    reply = self._ask(request, RELOAD_S)
                except _WorkerDiedError:
                    # It ran well once; whatever this is, it is not worth another try. The others must load again.
                    del wanted[name]
                    done = False
                    break
                if isinstance(reply, Loaded):
                    self._loaded[name] = request

    def _ask(self, request: Request, limit_s: float) -> Reply:
        self._await_ready()
        self._send(request)
        return self._receive(limit_s)

    def _await_ready(self) -> None:
        for attempt in range(DEATHS):
            if self._ready:
                return
            try:
                reply = self._receive(SETUP_S)
            except _WorkerDiedError as death:
                if attempt == DEATHS - 1:
                    raise LaunchError(f"nothing can be measured: the worker process {death}") from None
                self._kill()
                self._spawn()
                continue
            if isinstance(reply, Refused):
                raise LaunchError(f"nothing can be measured: {reply.reason}")
            self._ready = isinstance(reply, Ready)

    def _send(self, request: Request) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(frame(request))
            self._process.stdin.flush()
        except OSError:
            raise _WorkerDiedError(self._how_it_ended()) from None

    def _receive(self, limit_s: float) -> Reply:
        assert self._process is not None
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while (reply := take_reply(self._buffer)) is None:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise _WorkerDiedError(f"did not end within {limit_s:.1f} s")
                data = os.read(descriptor, 1 << 16)
                if not data:
                    raise _WorkerDiedError(self._how_it_ended())
                self._buffer += data
        return reply

    def _how_it_ended(self) -> str:
        assert self._process is not None
        try:
            status = self._process.wait(5)
        except subprocess.TimeoutExpired:
            return "closed its pipe"
        if status < 0:
            try:
                return f"crashed ({signal.Signals(-status).name})"
            except ValueError:
                return f"crashed (signal {-status})"
        return f"ended with status {status}"

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        process.wait()
