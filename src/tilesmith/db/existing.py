"""Opens a database that a user names and that must be there."""

from __future__ import annotations

from pathlib import Path

from tilesmith.db.connect import why_unreadable
from tilesmith.db.opening import open_database
from tilesmith.db.remote import cached_copy, is_url
from tilesmith.db.store import Database
from tilesmith.errors import FileFormatError


def existing_database(path: str, readonly: bool = True, damaged: bool = False) -> Database:
    """The database at ``path``; ``FileFormatError`` if there is none, or (unless ``damaged``) it cannot be read."""
    place = cached_copy(path) if is_url(path) else Path(path)
    if not place.exists() and not Path(f"{place}.records").is_dir():
        raise FileFormatError(f"{path}: no such database")
    reason = None if damaged else why_unreadable(place)
    if reason is not None:
        raise FileFormatError(f"{path}: cannot be read as a database ({reason})")
    database = open_database(place, readonly=readonly or is_url(path))
    if is_url(path):
        database.source = path
    return database
