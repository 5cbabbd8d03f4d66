"""Small records in files of their own: one line of JSON, then the sha256 of that line."""

from __future__ import annotations

import hashlib
import json
from typing import Any


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
