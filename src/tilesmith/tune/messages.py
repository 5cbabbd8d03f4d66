"""The messages between the session and its worker process: length-prefixed msgpack over pipes."""

from __future__ import annotations

import struct
from typing import BinaryIO

import msgspec

from tilesmith.measure.accuracy import Accuracy
from tilesmith.measure.timing import Timing

_LENGTH = struct.Struct("<I")


class Setup(msgspec.Struct, frozen=True, tag=True):
    """Sets the problem of the following messages. The oracle's answer is stored in the file ``oracle``, for later
    workers.

    ``device`` is a CUDA device's ordinal, -1 for the CPU; ``cache`` is the folder of the kernels that check there.
    """

    problem: str
    seed: int
    oracle: str
    device: int = -1
    cache: str = ""


class Load(msgspec.Struct, frozen=True, tag=True):
    """Bind a plan, run ``prepare``, check the numbers, and time a few calls.

    Without a plan: check and time a kernel of another library, ``config`` of its ``solver``.
    """

    name: str
    plan: bytes = b""
    artifacts: tuple[str, ...] = ()
    solver: str = ""
    config: str = ""


class Certify(msgspec.Struct, frozen=True, tag=True):
    """Make the checks that a loaded plan must pass before it may be chosen."""

    name: str


class Verify(msgspec.Struct, frozen=True, tag=True):
    """All checks of one plan of any problem, without a ``Setup``; nothing is kept.

    The oracle's answer is read from the file ``oracle``; without one it is made in parts, which fit the memory.
    ``specials`` plants NaN and Inf in each operand in turn.
    """

    problem: str
    seed: int
    plan: bytes
    artifacts: tuple[str, ...]
    oracle: str = ""
    specials: bool = False


class Race(msgspec.Struct, frozen=True, tag=True):
    """Time loaded plans against each other (``measure.timing.interleave``); ``compares`` their results afterwards."""

    names: tuple[str, ...]
    rounds: int
    budget_s: float
    threads: int
    drop_ratio: float | None
    compares: bool = False


class Unload(msgspec.Struct, frozen=True, tag=True):
    """Forget plans. It has no reply."""

    names: tuple[str, ...]


class Reset(msgspec.Struct, frozen=True, tag=True):
    """Forget the problem and wait for the next request, at most ``idle_s`` seconds (0: for ever). It has no reply."""

    idle_s: int = 0


class Prepare(msgspec.Struct, frozen=True, tag=True):
    """Make a device's context, which the next ``Setup`` finds: the first request to a process for a device."""

    device: int


class Prepared(msgspec.Struct, frozen=True, tag=True):
    """The process is up since ``moment`` (of ``time.monotonic``, which is one for all processes of a machine)."""

    moment: float


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The arguments and the oracle's answer are at hand."""

    seconds: float


class Loaded(msgspec.Struct, frozen=True, tag=True):
    """The plan is right: its error against the bound, a first estimate of its time, and what ``prepare`` takes.

    ``made_by`` names the library where no plan of ours was loaded.
    """

    error: float
    bound: float
    quick: Timing
    prepare_us: float
    made_by: str = ""


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The plan is wrong, or cannot be run. The worker continues, unless this is its ``last`` reply."""

    reason: str
    error: float | None = None
    bound: float | None = None
    last: bool = False


class Certified(msgspec.Struct, frozen=True, tag=True):
    """The plan has passed every check."""


class Verified(msgspec.Struct, frozen=True, tag=True):
    """``measure.accuracy.Accuracy``."""

    ok: bool
    error: float
    bound: float
    worst_index: tuple[int, ...]
    message: str


def refused(verdict: Accuracy) -> Refused:
    """The reply for wrong numbers."""
    return Refused(f"wrong numbers: {verdict.message}", verdict.error, verdict.bound)


class Raced(msgspec.Struct, frozen=True, tag=True):
    """Times, and what is wrong with the last results of some."""

    timings: dict[str, Timing]
    wrong: dict[str, Refused] = {}


Request = Setup | Load | Certify | Verify | Race | Unload | Reset | Prepare
Reply = Prepared | Ready | Loaded | Certified | Verified | Refused | Raced

_requests = msgspec.msgpack.Decoder(Request)
_replies = msgspec.msgpack.Decoder(Reply)


def frame(message: Request | Reply) -> bytes:
    """A message in the bytes of the pipe."""
    data = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(data)) + data


def read_request(stream: BinaryIO) -> Request | None:
    """The next request; None at the end of the stream."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    data = stream.read(length)
    return _requests.decode(data) if len(data) == length else None


def take_reply(buffer: bytearray) -> Reply | None:
    """Remove the first whole reply from ``buffer``; None as long as there is none."""
    if len(buffer) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack_from(buffer)
    end = _LENGTH.size + length
    if len(buffer) < end:
        return None
    reply: Reply = _replies.decode(bytes(buffer[_LENGTH.size : end]))
    del buffer[:end]
    return reply
