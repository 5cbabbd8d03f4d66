"""Tables of plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

INDENT = "    "  # of what stands below a row
_LEFT = "..."  # for what is cut from a cell


def table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns of text, padded; numbers to the right."""
    text = [[_cell(value) for value in row] for row in rows]
    widths = [max(len(line[i]) for line in [list(headers), *text]) for i in range(len(headers))]
    numeric = [all(isinstance(row[i], int | float | None) for row in rows) and bool(rows) for i in range(len(headers))]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, numeric, strict=True)
        )
        return "  ".join(padded).rstrip()

    return "\n".join([line(headers), *(line(row) for row in text)])


def fitted_table(
    headers: Sequence[str], rows: Sequence[Sequence[object]], width: int, below: Sequence[str] = ()
) -> str:
    """A table of lines of at most ``width`` characters.

    Where it is too wide, the columns named in ``below`` stand whole, on lines of their own: above the rest of their row
    if they are the first columns, else below it. If the rest is still too wide, its widest texts are cut.
    """
    whole = table(headers, rows)
    if _width_of(whole) <= width or not rows:
        return whole
    kept = [i for i, header in enumerate(headers) if header not in below] or [0]
    above = [i for i in range(len(headers)) if i < min(kept)]
    under = [i for i, header in enumerate(headers) if i not in kept and i not in above]
    indent = INDENT if above else ""
    cells = [[row[i] for i in kept] for row in rows]
    lines = _cut_table([headers[i] for i in kept], cells, width - len(indent)).splitlines()
    out = [*(headers[i] for i in above), indent + lines[0]]
    for line, row in zip(lines[1:], rows, strict=True):
        out += [part for i in above for part in wrapped(_cell(row[i]), width, INDENT, "")]
        out.append(indent + line)
        told = [_cell(row[i]) for i in under if row[i] not in (None, "")]
        out += [part for text in told for part in wrapped(text, width, INDENT + indent)]
    return "\n".join(out)


def wrapped(text: str, width: int, indent: str = "", first: str | None = None) -> list[str]:
    """The lines of a text, each of at most ``width`` characters if its words are short enough.

    A key that is too long for a line is broken behind its semicolons; another long word, such as a path, stays whole.
    The first line begins with ``first``, all others with ``indent``.
    """
    room = max(8, width - len(indent))
    words = []
    for word in text.split():
        words += [word] if len(word) <= room else _pieces(word, room)
    start = indent if first is None else first
    if not words:
        return [start.rstrip()] if start.strip() else []
    return textwrap.wrap(
        " ".join(words), width, initial_indent=start, subsequent_indent=indent, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def _pieces(word: str, room: int) -> list[str]:
    """A long word in parts that end at a semicolon, each of at most ``room`` characters if it has enough of them."""
    parts = [""]
    for piece in word.split(";"):
        if parts[-1] and len(parts[-1]) + len(piece) >= room:
            parts.append("")
        parts[-1] += f"{piece};"
    return [*parts[:-1], parts[-1][:-1]]


def _width_of(text: str) -> int:
    return max(map(len, text.splitlines()), default=0)


def _cut_table(headers: Sequence[str], rows: Sequence[Sequence[object]], width: int) -> str:
    """The table, with the longest texts of its widest columns cut until it fits."""
    cells: list[list[object]] = [list(row) for row in rows]
    while True:
        made = table(headers, cells)
        over = _width_of(made) - width
        texts = [i for i in range(len(headers)) if any(isinstance(row[i], str) for row in cells)]
        if over <= 0 or not texts:
            return made
        widest = max(texts, key=lambda i: max(len(_cell(row[i])) for row in cells))
        longest = max(len(_cell(row[widest])) for row in cells)
        room = max(len(headers[widest]), longest - over, 8)
        if room >= longest:
            return made
        for row in cells:
            text = _cell(row[widest])
            row[widest] = text if len(text) <= room else text[: room - len(_LEFT)] + _LEFT


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else plain_text(str(value))


def plain_text(text: str) -> str:
    """``text`` with control characters written as Python writes them, such as ``\\x1b``: a terminal obeys none."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)
