"""Records as JSON lines: for people, for other machines, and for files of one record.

A line has ``format`` (which says the table, too), the fields of its record, and ``seal``. A line of a newer format is
none of ours to judge; every other one that is not exactly what was written is refused, with what is wrong with it.
"""

from __future__ import annotations

import json
from typing import Any

from tilesmith.db.records import Record, Search
from tilesmith.db.seal import RECORD_FIELDS, SEARCH_FIELDS, seal_of, sound_record, sound_search, values_of
from tilesmith.errors import FileFormatError, RecordError

_KINDS = {"results": "tilesmith result", "trials": "tilesmith trial", "searches": "tilesmith search"}
_TABLES = {kind: table for table, kind in _KINDS.items()}
VERSION = 1


def line_of(table: str, record: Record | Search) -> str:
    """One line of JSON; the inverse of ``read_line``."""
    names = RECORD_FIELDS if isinstance(record, Record) else SEARCH_FIELDS
    values = values_of(record)
    fields = dict(zip(names, values, strict=True))
    return json.dumps({"format": f"{_KINDS[table]} {VERSION}", **fields, "seal": seal_of(values)}, allow_nan=False)


def read_line(text: str) -> tuple[str, Record | Search] | None:
    """The table and the record of a line; None for one of a newer format.

    Raises ``FileFormatError`` for text that is no JSON object, lacks a field, has one too many, breaks its seal, or has
    a field outside its rule.
    """
    try:
        line = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"is no line of JSON: {error}") from None
    if not isinstance(line, dict):
        raise FileFormatError("is no JSON object")
    table, version = _format_of(line.pop("format", None))
    if version > VERSION:
        return None
    names = SEARCH_FIELDS if table == "searches" else RECORD_FIELDS
    seal = line.pop("seal", None)
    for name in names:
        if name not in line:
            raise FileFormatError(f"lacks the field {name!r}")
    for name in line:
        if name not in names:
            raise FileFormatError(f"has the field {name!r}, which does not exist")
    values = tuple(line[name] for name in names)
    try:
        return table, sound_search(values, seal) if table == "searches" else sound_record(values, seal)
    except RecordError as error:
        raise FileFormatError(f"is damaged: {error}") from None


def _format_of(value: Any) -> tuple[str, int]:
    if isinstance(value, str):
        kind, _, number = value.rpartition(" ")
        if kind in _TABLES and number.isascii() and number.isdecimal() and 0 < len(number) < 6:
            return _TABLES[kind], int(number)
    raise FileFormatError(f"is of the format {value!r}; known: {', '.join(f'{kind} {VERSION}' for kind in _TABLES)}")
