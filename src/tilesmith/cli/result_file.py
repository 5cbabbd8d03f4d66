"""Files of results that a verb writes: found to be writable before the work begins, and replaced as a whole."""

from __future__ import annotations

import os
from pathlib import Path

from tilesmith.errors import FileFormatError


def check_writable(option: str, path: str | None) -> None:
    """A result file that cannot be written is better met before the measurements than after them."""
    if path is None or path == "-":
        return
    if not path:
        raise FileFormatError(f"{option} '': not a file's path")
    if not Path(path).parent.is_dir():
        raise FileFormatError(f"{path}: cannot be written: no folder {Path(path).parent}")
    fresh = not Path(path).exists()
    try:
        with open(path, "a"):
            pass
        if fresh:
            Path(path).unlink()
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be written: {error.strerror or error}") from None


def write_result(name: str, text: str) -> None:
    """Write a whole file in place of the one that is there; ``FileFormatError`` if that fails."""
    path = Path(name)
    try:
        if path.exists() and not path.is_file():  # a pipe, say
            path.write_text(text)
            return
        staged = path.with_name(f".{path.name}.{os.getpid()}")
        staged.write_text(text)
        os.replace(staged, path)
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be written: {error.strerror or error}") from None
