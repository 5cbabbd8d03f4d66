"""How long text may be that names a problem. Real commands and keys have some hundred characters, lists some megabytes.

A longer one is a mistake, such as a file of another kind. It is refused before it is read: taking it apart would cost
seconds for each megabyte.
"""

from __future__ import annotations

from tilesmith.errors import TilesmithError

MAX_TEXT = 1 << 16  # characters of a driver command, a key, a line of a find-db
MAX_FILE = 1 << 26  # bytes of a list of commands


def check_length(what: str, text: str, error: type[TilesmithError]) -> None:
    """Raise ``error`` for text that is too long to be read."""
    if isinstance(text, str) and len(text) > MAX_TEXT:
        raise error(f"{what} {text[:40]!r}... has {len(text)} characters, and at most {MAX_TEXT} characters are read")
