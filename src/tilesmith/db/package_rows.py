"""The rows of the find-db and the perf-db that kernel packages hold."""

from __future__ import annotations

import io

from tilesmith.db.lines import read_line
from tilesmith.db.records import Record
from tilesmith.errors import FileFormatError, PackageError
from tilesmith.runtime.packages import Kind, PackageReader, name_of

TABLES = {Kind.FIND: "results", Kind.PERF: "trials"}


def rows_in(package: PackageReader, kind: Kind, *parts: str) -> tuple[Record, ...]:
    """The rows of an entry of the find-db (``FIND``, problem, target) or the perf-db (``PERF``, and solver).

    Raises ``PackageError`` for a damaged entry.
    """
    index = package.find(kind, name_of(*parts))
    return () if index is None else records_in(kind, package.read(index))


def records_in(kind: Kind, content: bytes) -> tuple[Record, ...]:
    """The records of an entry's rows; rows of a newer format are left out.

    Raises ``PackageError`` for a row that is damaged, or of another table.
    """
    found = []
    try:
        for line in io.BytesIO(content):  # not all lines at once: rows that are none may be short and many
            row = read_line(line.decode().rstrip("\n"))
            if row is not None:
                if row[0] != TABLES[kind] or not isinstance(row[1], Record):
                    raise PackageError(f"a row of the table {row[0]} stands among {TABLES[kind]}")
                found.append(row[1])
    except (FileFormatError, UnicodeDecodeError) as error:
        raise PackageError(f"a row {error}") from None
    return tuple(found)


def check_rows(kind: Kind, name: str, content: bytes) -> None:
    """``PackageError`` unless every row is whole, and of the problem and target (and solver) that the name says."""
    for record in records_in(kind, content):
        parts = (record.problem, record.target, *((record.solver,) if kind == Kind.PERF else ()))
        if name_of(*parts) != name:
            raise PackageError(f"a row of {record.problem} on {record.target} stands under {name[:200]!r}")
