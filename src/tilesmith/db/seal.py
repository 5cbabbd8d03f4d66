"""Seals: a digest over all fields of a record, kept beside it, so that no changed byte is ever used.

SQLite has no checksums of its own: a flipped bit in a time or a config is another time or config. The seal of a row is
sha256 over its values in the order of the record's fields, each with its type and length.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter, index
from typing import Any, TypeVar

from tilesmith.db.records import Record, Search
from tilesmith.errors import RecordError

R = TypeVar("R", Record, Search)

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
    """The values of a record in the order of its fields."""
    return _RECORD_VALUES(record) if isinstance(record, Record) else _SEARCH_VALUES(record)


_RECORD_VALUES: Callable[[Record], tuple[Any, ...]] = attrgetter(*RECORD_FIELDS)
_SEARCH_VALUES: Callable[[Search], tuple[Any, ...]] = attrgetter(*SEARCH_FIELDS)


def sound_record(values: tuple[Any, ...], seal: object) -> Record:
    """The record of these values; ``RecordError`` unless they are what was sealed, each within its rule."""
    return _sound(Record, values, seal)


def sound_search(values: tuple[Any, ...], seal: object) -> Search:
    """The search of these values; ``RecordError`` unless they are what was sealed, each within its rule."""
    return _sound(Search, values, seal)


def _sound(kind: Callable[..., R], values: tuple[Any, ...], seal: object) -> R:
    try:
        holds = seal == seal_of(values)
    except (TypeError, ValueError, OverflowError):
        holds = False
    if not holds:
        raise RecordError("its seal does not fit its fields")
    record = kind(*values)
    if values_of(record) != values:  # the seal holds, but no Tilesmith writes a number or text that is none
        raise RecordError("it holds a number that is none, or text that is not Unicode")
    return record
