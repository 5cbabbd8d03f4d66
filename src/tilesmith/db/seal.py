"""Seals: a digest over all fields of a record, kept beside it, so that no changed byte is ever used.

SQLite has no checksums of its own: a flipped bit in a time or a config is another time or config. The seal of a row is
sha256 over its values in the order of the record's fields, each with its type and length.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import fields
from operator import index
from typing import Any

from tilesmith.db.records import Record, Search

_FORMAT = b"tilesmith record 1;"  # part of every seal: never changed
_HEX = 32

RECORD_FIELDS = tuple(item.name for item in fields(Record))
SEARCH_FIELDS = tuple(item.name for item in fields(Search))
REAL_FIELDS = frozenset(("time_us", "spread_us", "prepare_us", "error", "bound", "seconds"))
_RECORD_REAL = tuple(name in REAL_FIELDS for name in RECORD_FIELDS)
_SEARCH_REAL = tuple(name in REAL_FIELDS for name in SEARCH_FIELDS)


def seal_of(values: tuple[Any, ...]) -> str:
    """The seal of a row of ``RECORD_FIELDS``, or of ``SEARCH_FIELDS`` (the number of values tells which)."""
    real = _RECORD_REAL if len(values) == len(_RECORD_REAL) else _SEARCH_REAL
    parts = [_FORMAT]
    for value, is_real in zip(values, real, strict=True):
        if value is None:
            parts.append(b"n;")
        elif isinstance(value, str):
            text = value.encode("utf-8", "surrogatepass")
            parts.append(b"s%d:" % len(text) + text)
        elif is_real:
            parts.append(b"f%r;" % float(value))
        else:
            parts.append(b"i%d;" % index(value))  # a float with a fraction would print as another number
    return hashlib.sha256(b"".join(parts)).hexdigest()[:_HEX]


def values_of(record: Record | Search) -> tuple[Any, ...]:
    """The values of a record as a file can hold them: numbers that are no numbers become None, text is UTF-8."""
    names = RECORD_FIELDS if isinstance(record, Record) else SEARCH_FIELDS
    values = []
    for name in names:
        value = getattr(record, name)
        if isinstance(value, str):
            value = value.encode("utf-8", "replace").decode()
        elif name in REAL_FIELDS and value is not None:
            value = float(value) if math.isfinite(value) else None
        values.append(value)
    return tuple(values)


def sound_record(values: tuple[Any, ...], seal: object) -> Record | None:
    """The record of these values; None unless they are what was sealed, and make sense."""
    try:
        if seal != seal_of(values):
            return None
        record = Record(*values)
    except (TypeError, ValueError, OverflowError):
        return None
    return record if makes_sense(record) else None


def sound_search(values: tuple[Any, ...], seal: object) -> Search | None:
    """The search of these values; None unless they are what was sealed."""
    try:
        return Search(*values) if seal == seal_of(values) else None
    except (TypeError, ValueError, OverflowError):
        return None


def makes_sense(record: Record) -> bool:
    """Every field is of its type, and a time is a time."""
    texts = (record.problem, record.target, record.solver, record.config, record.status, record.reason)
    more = (record.method, record.compiler, record.generator, record.host, record.date, record.origin)
    counts = (record.revision, record.samples, record.workspace)
    reals = (record.time_us, record.spread_us, record.prepare_us, record.error, record.bound)
    return (
        all(isinstance(value, str) for value in (*texts, *more))
        and all(isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63 for value in counts)
        and all(value is None or (isinstance(value, int | float) and math.isfinite(value)) for value in reals)
        and record.known_status
        and (record.time_us is None or record.time_us > 0)
    )
