"""TOML files that users write: read with the line of what is wrong, which the parser does not tell."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tilesmith.errors import FileFormatError
from tilesmith.reading import read_named

_MOST_LINES = 200  # of one table
_HEADER = re.compile(r"\s*\[\[.*\]\]")


def read_toml(path: Path, most: int) -> tuple[str, dict[str, Any]]:
    """The text of a file of ``most`` bytes at most, and its document. ``FileFormatError`` names the line of an error.

    The file can be no pipe: what is read here is read again by each process that needs it.
    """
    data = read_named(path, most, pipes=False)
    try:
        text = data.decode()
        return text, tomllib.loads(text)
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise FileFormatError(f"{path}:{line}: this is no UTF-8 text") from None
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, arrays in arrays without end
        raise FileFormatError(f"{path}{_syntax_line(text)}: this is no TOML: {error}") from None


def line_of(rows: list[str], name: str, begin: int) -> int:
    """The first line from ``begin`` on that begins with ``name``; ``begin`` if none does."""
    begins = re.compile(rf"""\s*\[*\s*["']?{re.escape(name)}["']?\s*[=.\]]""")
    return next((number for number in range(begin, len(rows) + 1) if begins.match(rows[number - 1])), begin)


def _syntax_line(text: str) -> str:
    """``:LINE`` up to which the text can still become TOML: the first line whose end no longer parses."""
    rows = text.splitlines(keepends=True)
    heads = [0, *(number for number, row in enumerate(rows) if number and _HEADER.match(row)), len(rows)]
    whole = _last(range(len(heads)), lambda place: _parses(rows[: heads[place]]))
    begin = heads[whole]
    choice = rows[begin : heads[min(whole + 1, len(heads) - 1)]]
    # A line inside a value of several lines does not parse, and one behind that value does: each is tried.
    good = next((count for count in range(min(len(choice), _MOST_LINES), 0, -1) if _parses(choice[:count])), 0)
    if good == _MOST_LINES < len(choice):
        good = _last(range(good, len(choice)), lambda count: _parses(choice[:count])) + good
    if good == len(choice):  # it contradicts what comes before it
        good = 0
    return f":{min(begin + good + 1, max(1, len(rows)))}"


def _last(locations: range, parses: Callable[[int], bool]) -> int:
    """The last index of ``locations`` that parses, of which the first does and none behind one that does not."""
    return bisect_left(locations, True, lo=1, key=lambda place: not parses(place)) - 1


def _parses(rows: Sequence[str]) -> bool:
    try:
        tomllib.loads("".join(rows))
    except (ValueError, RecursionError):
        return False
    return True
