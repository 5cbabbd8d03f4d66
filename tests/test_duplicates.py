"""No twelve lines of code stand twice in ``src``, whatever their names are."""

from __future__ import annotations

import io
import keyword
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "tilesmith"
LENGTH = 12
STATEMENTS = 4  # in so many lines, at least: fewer stand in tables, whose rows are alike
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}

Line = tuple[int, str]  # its number, and its text with every name as N, every string as S and every number as 0


def python_lines(text: str) -> Iterator[Line]:
    """The normalised lines of a Python file, without comments, docstrings, imports and lines of brackets alone.

    ``>`` begins a line with which a statement begins, other than the declaration of a class or field.
    """
    lines: dict[int, list[str]] = {}
    statement: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT and token.type != tokenize.ENDMARKER:
            statement.append(token)
        elif token.type in (tokenize.NEWLINE, tokenize.ENDMARKER) and statement:
            docstring = len(statement) == 1 and statement[0].type == tokenize.STRING
            if not docstring and statement[0].string not in ("import", "from"):
                words = [normal(each) for each in statement]
                declares = words[0] in ("class", "@") or words[:2] == ["N", ":"]
                lines.setdefault(statement[0].start[0], []).extend([] if declares else [">"])
                for each, word in zip(statement, words, strict=True):
                    lines.setdefault(each.start[0], []).append(word)
            statement = []
    for number, words in sorted(lines.items()):
        if any(word.isalnum() for word in words):
            yield number, " ".join(words)


def normal(token: tokenize.TokenInfo) -> str:
    if token.type == tokenize.NAME:
        return token.string if keyword.iskeyword(token.string) else "N"
    return {tokenize.STRING: "S", tokenize.NUMBER: "0"}.get(token.type, token.string)


def c_lines(text: str) -> Iterator[Line]:
    """The lines of a C or CUDA file that hold a word and are neither comments nor includes, spaces normalised."""
    for number, line in enumerate(text.splitlines(), 1):
        words = " ".join(line.split())
        if any(c.isalnum() for c in words) and not words.startswith(("//", "/*", "* ", "#include")):
            yield number, f"> {words}"


def repeated(files: Iterable[tuple[str, list[Line]]]) -> list[str]:
    """Each run of ``LENGTH`` lines that stands twice, as the places of both and their count of lines."""
    seen: dict[tuple[str, ...], tuple[str, int]] = {}
    pairs: dict[tuple[str, str, int], list[tuple[int, int]]] = {}
    for name, lines in files:
        for at in range(len(lines) - LENGTH + 1):
            window = tuple(text for _, text in lines[at : at + LENGTH])
            if sum(text.startswith(">") for text in window) < STATEMENTS:
                continue
            there, here = seen.setdefault(window, (name, at)), (name, at)
            if there != here and (there[0] != name or at - there[1] >= LENGTH):
                pairs.setdefault((there[0], name, at - there[1]), []).append((there[1], at))
    found = []
    by_name = dict(files)
    for (first, second, _), places in pairs.items():
        for begin in [i for i, p in enumerate(places) if i == 0 or p[0] != places[i - 1][0] + 1]:
            count = next((n for n, p in enumerate(places[begin:]) if p[0] != places[begin][0] + n), len(places) - begin)
            a, b = places[begin]
            lengths = count + LENGTH - 1
            found.append(f"{first}:{by_name[first][a][0]} and {second}:{by_name[second][b][0]}, {lengths} lines")
    return found


def sources() -> Iterator[tuple[str, list[Line]]]:
    for path in sorted(SOURCE.rglob("*")):
        name = str(path.relative_to(SOURCE))
        if path.suffix == ".py":
            yield name, list(python_lines(path.read_text()))
        elif path.suffix in (".c", ".h", ".cu", ".cuh"):
            yield name, list(c_lines(path.read_text()))


def test_other_names_do_not_hide_a_copy():
    body = [f"    total += {'weight *' * n} len(left)" for n in range(13)]
    text = "\n".join(["def f(self, left):", *body])
    files = [(name, list(python_lines(each))) for name, each in (("x", text), ("y", text.replace("weight", "w")))]
    assert repeated(files) == ["x:1 and y:1, 14 lines"]
    assert repeated(files[:1]) == []


def test_no_code_stands_twice():
    assert repeated(list(sources())) == []
