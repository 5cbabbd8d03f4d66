"""Opens the database at a path: the only place that knows every kind of database."""

from __future__ import annotations

import os
from pathlib import Path

from tilesmith.db.admission import why_refused
from tilesmith.db.files import must_be_files
from tilesmith.db.sqlite_store import SqliteDatabase, in_files
from tilesmith.db.state import RECORDS
from tilesmith.db.store import Database


def open_database(path: str | os.PathLike[str] | None, readonly: bool = False, *, tried: bool = True) -> Database:
    """The database at ``path`` (made if missing), or memory if it is None. Never raises: it degrades, loudly.

    One SQLite file; where its folder cannot hold one (``db.trial``), a folder of files beside it. With ``tried`` false
    the trial of the folder of an existing file waits for ``for_writing``, because a reader needs no trial.
    """
    if path is None:
        return SqliteDatabase.in_memory()
    file = Path(path)
    if why_refused(file) is not None:  # which opening it says
        return SqliteDatabase.at(file, readonly)
    waits = not readonly and not tried and os.path.exists(file)
    if os.path.isdir(f"{file}{RECORDS}") or (not (readonly or waits) and must_be_files(file)):
        return in_files(file, readonly)
    return SqliteDatabase.at(file, readonly, waits)
