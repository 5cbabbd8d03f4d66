"""Whether the database at a path may be opened: it is a file, in a folder where no other user can write."""

from __future__ import annotations

import os
from pathlib import Path

from tilesmith.db.state import RECORDS
from tilesmith.reading import why_no_file
from tilesmith.toolchain.trust import why_distrusted

SIDE_FILES = ("-journal", "-wal", "-shm")  # SQLite opens and believes them as it does the file


def why_refused(path: Path) -> str | None:
    """Why a database is not opened: one line that says what to type. None if it may be, or if nothing lies there.

    Opening a pipe would wait for ever. A user who can write to the folder can put a journal beside the file.
    """
    for name in (str(path), *(f"{path}{suffix}" for suffix in SIDE_FILES)):
        try:
            mode = os.stat(name).st_mode
        except (OSError, ValueError):
            continue
        if wrong := why_no_file(mode):
            return f"{name} {wrong}"
        if (reason := why_distrusted(name)) is not None:
            return reason
    return why_distrusted(path.parent) or why_distrusted(f"{path}{RECORDS}")
