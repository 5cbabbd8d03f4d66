"""Seals: digests that show that no byte of a file has changed.

A small record in a file of its own: one line of JSON, then the sha256 of that line (``seal``). Bytes that must lie
under their own name: the sha256 of the name and of the bytes, then the bytes (``bind``), of which the first line may
be such a record (``bind_with_record``).
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from tilesmith.errors import PlanError


def seal(record: dict[str, Any]) -> bytes:
    """The bytes of a record's file."""
    line = json.dumps(record, sort_keys=True).encode() + b"\n"
    return line + hashlib.sha256(line).hexdigest().encode() + b"\n"


def unseal(data: bytes) -> dict[str, Any] | None:
    """The record in a file; None if any byte is not as ``seal`` wrote it."""
    line, newline, digest = data.partition(b"\n")
    if digest != hashlib.sha256(line + newline).hexdigest().encode() + b"\n":
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def bind(name: str, payload: bytes) -> bytes:
    """The bytes of a file that holds ``payload`` and must be called ``name`` (its path in the folder)."""
    return hashlib.sha256(f"{name}\n".encode() + payload).digest() + payload


def unbind(name: str, data: bytes) -> bytes | None:
    """The payload in a file of this name; None if any byte of either is not as ``bind`` took it."""
    payload = data[32:]
    return payload if data[:32] == hashlib.sha256(f"{name}\n".encode() + payload).digest() else None


def bind_with_record(name: str, record: dict[str, Any], payload: bytes) -> bytes:
    """The same, with a record before the payload."""
    return bind(name, json.dumps(record).encode() + b"\n" + payload)


def unbind_with_record(name: str, data: bytes) -> tuple[dict[str, Any], bytes]:
    """The record and the payload; ``PlanError`` unless every byte is what was written under this name."""
    whole = unbind(name, data)
    if whole is None:
        raise PlanError("it is damaged")
    line, _, payload = whole.partition(b"\n")
    try:
        record = json.loads(line.decode())  # of bytes it would guess the encoding first
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise PlanError("its first line is no record")
    return record, payload
