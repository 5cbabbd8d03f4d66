"""The messages of client and workers. They are read strictly: a message that breaks its form is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import msgspec

from tilesmith.errors import FleetError
from tilesmith.tune.progress import Progress

TUNE, CHECK, COLLECT = "tune", "check", "collect"
T = TypeVar("T")


@dataclass(frozen=True)
class Task:
    """One problem on one target, or (``COLLECT``) a question for what a machine still holds.

    ``run`` names the run that the task belongs to, and so its outbox on each machine. ``first`` are solvers with
    configs to begin a search with. ``lines`` are the sealed records of the answer that ``CHECK`` measures.
    ``received`` names the parcels that the client has kept: the worker's machine need not hold them any longer.
    """

    kind: str
    run: str
    problem: str = ""
    target: str = ""
    strategy: str = "model"
    trials: int | None = None
    seconds: float | None = None
    seed: int = 0
    external: bool | None = None
    first: tuple[tuple[str, str], ...] = ()
    lines: tuple[str, ...] = ()
    received: tuple[str, ...] = ()


@dataclass(frozen=True)
class Parcel:
    """The result of one search. ``lines`` are sealed: the answers of all solvers, every trial, and the search."""

    name: str
    problem: str
    target: str
    worker: str
    lines: tuple[str, ...]
    new_trials: int
    failed: int
    disturbed: int
    seconds: float
    ended: str
    untuned_us: float | None


@dataclass(frozen=True)
class Checked:
    """An answer as a second machine measured it: ``here_us`` beside ``record_us``. ``chosen`` is what is best there."""

    host: str
    here_us: float | None
    record_us: float
    agrees: bool
    chosen: str


@dataclass(frozen=True)
class Reply:
    """The result of a task. With an ``error`` there is no answer; ``final`` if every worker would meet the same."""

    parcels: tuple[Parcel, ...] = ()
    error: str = ""
    final: bool = False
    checked: Checked | None = None


_tasks, _replies = msgspec.json.Decoder(Task), msgspec.json.Decoder(Reply)
_parcels, _progress = msgspec.json.Decoder(Parcel), msgspec.json.Decoder(Progress)


def encode(message: Task | Reply | Parcel | Progress) -> bytes:
    return msgspec.json.encode(message)


def read_task(data: bytes) -> Task:
    return _read(_tasks, data)


def read_reply(data: bytes) -> Reply:
    return _read(_replies, data)


def read_parcel(data: bytes) -> Parcel:
    return _read(_parcels, data)


def read_progress(data: bytes) -> Progress:
    return _read(_progress, data)


def _read(decoder: msgspec.json.Decoder[T], data: bytes) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FleetError(f"a message of a fleet cannot be read: {error}") from None
