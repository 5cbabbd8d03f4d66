"""The interface of what runs tasks on workers. Local processes and Dask implement it; others join by entry point.

An executor only says which workers are there, begins one task on one of them, and hands on what comes back.
``fleet.spread`` decides which task goes where, and what happens when a worker is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tilesmith.fleet.survey import survey

#: Takes bytes that a task tells before it ends.
Tell = Callable[[bytes], None]
#: What a worker runs: a function of a module, called with the device, the task's bytes and ``Tell``.
Run = Callable[[str, bytes, Tell], bytes]


@dataclass(frozen=True)
class Place:
    """A worker.

    Args:
        name: Its name, which no later worker gets.
        host: The machine's name.
        device: What it measures on: ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
        target: The target's name.
    """

    name: str
    host: str
    device: str
    target: str


@dataclass(frozen=True)
class Told:
    """A task that runs has told something: its progress."""

    task: str
    payload: bytes


@dataclass(frozen=True)
class Replied:
    """A task is over: its reply, or (``reason``) why there is none."""

    task: str
    payload: bytes
    reason: str = ""


Event = Told | Replied


class Executor(Protocol):
    """Runs one task at a time on each of its workers. Every method returns within seconds, whatever workers do.

    With ``ahead`` a worker that is busy may be given one more task, which waits there: then no worker waits for the
    client between two tasks.
    """

    ahead: bool

    def places(self) -> tuple[Place, ...]:
        """The workers that are there now. A worker that was lost or dropped is in no later answer."""

    def begin(self, place: Place, task: str, payload: bytes) -> None:
        """Begin a task on a worker; ``task`` is its name, used once. That the worker is lost shows in ``places``."""

    def wait(self, seconds: float) -> tuple[Event, ...]:
        """All that has come since the last time. Waits at most so long for the first event."""

    def drop(self, place: Place) -> None:
        """End a worker that hangs, with its task. Another worker may come in its place."""

    def close(self) -> None:
        """End what this executor has started."""


@dataclass(frozen=True)
class Wanted:
    """The options of an executor.

    Args:
        address: The text after ``--cluster``, such as ``tcp://scheduler:8786``.
        run: What workers run.
        device: Device of each worker: ``"cpu"`` or ``"cuda"``.
        threads: CPU threads of a launch; None: the worker's default.
        connect_s: Seconds that the connection may take.
        tls: Paths of the certificates of the authority, of this client, and of its key; empty: as Dask is configured.
        look: Says what a worker is (``fleet.survey.Survey``, as bytes), called there with ``device`` and ``threads``.
    """

    address: str
    run: Run
    device: str = "cpu"
    threads: int | None = None
    connect_s: float = 10.0
    tls: tuple[str, str, str] = ("", "", "")
    look: Callable[[str, int | None], bytes] = survey

    @property
    def family(self) -> str:
        """Family of the targets."""
        return "cpu" if self.device == "cpu" else "cuda"
