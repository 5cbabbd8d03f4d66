"""Files of commands: one a line, with comments and empty lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tilesmith.errors import CommandError
from tilesmith.problems.driver.command import DriverCommand
from tilesmith.problems.driver.parse import parse_command
from tilesmith.problems.limits import MAX_FILE
from tilesmith.reading import read_named


class CommandLine(NamedTuple):
    """One line of a file: what it says, or why it cannot be read. Exactly one of ``command`` and ``error`` is None."""

    number: int
    text: str
    command: DriverCommand | None
    error: CommandError | None


def read_commands(path: Path | str) -> Iterator[CommandLine]:
    """Every command of a file with its line number; a bad line is an item with its error, and the rest still follows.

    Raises ``FileFormatError`` when the file itself cannot be read, or is far too large for a list.
    """
    return _lines(str(path), read_named(path, MAX_FILE))


def _lines(path: str, raw: bytes) -> Iterator[CommandLine]:
    for number, line in enumerate(raw.removeprefix(b"\xef\xbb\xbf").splitlines(), 1):
        text = line.decode("utf-8", "replace").strip()
        if not text or text.startswith("#"):
            continue
        try:
            if "\ufffd" in text or "\0" in text:
                raise CommandError("the line is not UTF-8 text")
            yield CommandLine(number, text, parse_command(text), None)
        except CommandError as error:
            yield CommandLine(number, text, None, CommandError(f"{path}:{number}: {error}"))
