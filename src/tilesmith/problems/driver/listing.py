"""Reads lists of problems: files with one driver command, or the key of one problem, on each line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tilesmith.errors import CommandError
from tilesmith.problems.driver.command import DriverCommand
from tilesmith.problems.driver.keyed import KeyedProblem, parse_problem
from tilesmith.problems.limits import MAX_FILE
from tilesmith.reading import read_named


class CommandLine(NamedTuple):
    """One line of a file: its command or key, or the reason why it cannot be read.

    Either ``command`` or ``error`` is None.
    """

    number: int
    text: str
    command: DriverCommand | KeyedProblem | None
    error: CommandError | None


_CALLS = re.compile(r"#\s*([0-9]{1,15}) calls?\s*$")


def calls_text(count: int) -> str:
    """The number of calls as ``tilesmith trace`` writes it behind a problem: ``1 call``, ``12 calls``."""
    return "1 call" if count == 1 else f"{count} calls"


def calls_of(text: str) -> int:
    """The number of calls that a line's comment ends with; 1 without one."""
    found = _CALLS.search(text)
    return max(1, int(found[1])) if found else 1


def read_commands(path: Path | str) -> Iterator[CommandLine]:
    """Read the commands and keys of a file, with their line numbers. A bad line gives an item with its error.

    Args:
        path: The file, one command or key on each line; at most 64 MiB.

    Returns:
        An iterator with one item for each line that is neither empty nor a comment.

    Raises:
        FileFormatError: The file cannot be read or is too large.
    """
    return _lines(str(path), read_lines(path))


def read_lines(path: Path | str) -> Iterator[tuple[int, str]]:
    """The number and the text of each line that ``read_commands`` reads; ``checked`` says whether it is text."""
    return _numbered(read_named(path, MAX_FILE))


def _numbered(raw: bytes) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(raw.removeprefix(b"\xef\xbb\xbf").splitlines(), 1):
        text = line.decode("utf-8", "replace").strip()
        if text and not text.startswith("#"):
            yield number, text


def checked(text: str) -> str:
    """The text of a line; ``CommandError`` if it was no UTF-8."""
    if "\ufffd" in text or "\0" in text:
        raise CommandError("the line is not UTF-8 text")
    return text


def _lines(path: str, lines: Iterator[tuple[int, str]]) -> Iterator[CommandLine]:
    for number, text in lines:
        try:
            yield CommandLine(number, text, parse_problem(checked(text)), None)
        except CommandError as error:
            yield CommandLine(number, text, None, CommandError(f"{path}:{number}: {error}"))
