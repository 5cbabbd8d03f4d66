"""Describes a worker: its machine, device, target, and the Tilesmith that makes its kernels."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from tilesmith.dispatch.locations import target_of
from tilesmith.errors import FleetError, TilesmithError
from tilesmith.fleet.outbox import own_folder
from tilesmith.solvers.generation import generator_digest


@dataclass(frozen=True)
class Survey:
    """``generator`` is the digest of the files that make kernels; ``reason`` says why the worker cannot be used."""

    host: str
    device: str
    target: str = ""
    generator: str = ""
    reason: str = ""


_surveys = msgspec.json.Decoder(Survey)


def survey(device: str, threads: int | None) -> bytes:
    """Look at the machine that this runs on."""
    host = own_folder().name
    try:
        target = target_of(None, threads, device)
    except TilesmithError as error:
        return msgspec.json.encode(Survey(host, device, reason=str(error)))
    return msgspec.json.encode(Survey(host, device, target.name, generator_digest(target.family)))


def read_survey(data: bytes, family: str) -> Survey:
    """The survey of a worker that can be used. Raises ``FleetError`` with the reason, if it cannot."""
    try:
        found = _surveys.decode(data)
    except msgspec.MsgspecError as error:
        raise FleetError(f"its answer cannot be read: {error}") from None
    if not found.reason and found.generator != generator_digest(family):
        raise FleetError("it has another version of Tilesmith; install the client's version there")
    if found.reason:
        raise FleetError(found.reason)
    return found
