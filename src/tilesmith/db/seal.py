"""Seals: a digest over all fields of a record, kept beside it, so that no changed byte is ever used.

SQLite has no checksums of its own: a flipped bit in a time or a config is another time or config. The seal of a row is
sha256 over its values in the order of the record's fields, each with its type and length.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import fields
from itertools import compress
from operator import contains, index
from typing import Any

from tilesmith.db.records import STATUSES, Record, Search

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
    parts = [
        b"n;" if value is None
        else b"s%d:%b" % (len(text := value.encode("utf-8", "surrogatepass")), text) if isinstance(value, str)
        else b"f%r;" % float(value) if is_real
        else b"i%d;" % index(value)  # a float with a fraction would print as another number
        for value, is_real in zip(values, real, strict=True)
    ]  # fmt: skip
    return hashlib.sha256(_FORMAT + b"".join(parts)).hexdigest()[:_HEX]


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
        return Record(*values) if _makes_sense(values) else None
    except (TypeError, ValueError, OverflowError):
        return None


def sound_search(values: tuple[Any, ...], seal: object) -> Search | None:
    """The search of these values; None unless they are what was sealed."""
    try:
        return Search(*values) if seal == seal_of(values) else None
    except (TypeError, ValueError, OverflowError):
        return None


def _makes_sense(values: tuple[Any, ...]) -> bool:
    """Every field is of its type, and a time is a time."""
    return (
        all(map(contains, _TYPES, map(type, values)))
        and all(map(_COUNTS.__contains__, compress(values, _IS_COUNT)))
        and all(map(math.isfinite, filter(None, compress(values, _RECORD_REAL))))
        and values[_STATUS] in STATUSES
        and (values[_TIME] is None or values[_TIME] > 0)
    )


_TEXT, _COUNT, _REAL = frozenset((str,)), frozenset((int,)), frozenset((float, int, type(None)))
_TYPES = tuple(
    _REAL if item.name in REAL_FIELDS else _COUNT if item.type == "int" else _TEXT for item in fields(Record)
)
_IS_COUNT = tuple(kind is _COUNT for kind in _TYPES)
_COUNTS = range(1 << 63)
_STATUS, _TIME = RECORD_FIELDS.index("status"), RECORD_FIELDS.index("time_us")
