"""Selection files: TOML that says which problems and which kernels go into a package or a library.

::

    lists = ["resnet50.txt"]                 # files of driver commands and keys, which may have ranges
    problems = ["convfp16 -n 1..64*2 -c 64 -H 56 -W 56 -k 64 -y 3 -x 3 -p 1 -q 1 -F 1"]
    traits = ["fp16", "int8/int8/int8"]      # element types
    modes = ["fwd", "deconv"]
    tiles = ["128x128", "128x64x32"]         # of GPU kernels
    arch_stages = ["sm80_3", "sm90_4"]       # of GPU kernels
    solvers = ["wgmma_*", "mma_dense"]
    size = "4 MB"
    reference = false

Every key may be left out. ``rules`` has what they mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tilesmith.errors import ArgumentError, CommandError, FileFormatError
from tilesmith.package.selection.ranges import MOST_COMMANDS, expand_command
from tilesmith.package.selection.rules import SOLVERS, Selection, limited_by
from tilesmith.package.selection.terms import (
    parse_arch_stages,
    parse_mode,
    parse_size,
    parse_tile,
    parse_trait,
)
from tilesmith.problems.driver import parse_problem
from tilesmith.problems.driver.listing import checked, read_lines
from tilesmith.problems.rewrite import Signature
from tilesmith.reading_toml import line_of, read_toml

__all__ = ["Selection", "read_selection"]
KEYS = ("lists", "problems", "traits", "modes", "tiles", "arch_stages", "solvers", "size", "reference")
MOST_BYTES = 1 << 22
Term = TypeVar("Term")


def read_selection(path: Path | str) -> Selection:
    """The selection that a file describes.

    Args:
        path: A TOML file of at most 4 MiB. ``lists`` are found beside it.

    Returns:
        The selection, with its problems.

    Raises:
        FileFormatError: The file or a list cannot be read, or breaks a rule; the message names the line.
    """
    source = _read(Path(path))
    unknown = next((key for key in source.document if key not in KEYS), None)
    if unknown is not None:
        raise source.error(unknown, f"{unknown!r} does not exist in a selection; known: {', '.join(KEYS)}")
    size, reference = source.document.get("size"), source.document.get("reference", True)
    if not isinstance(reference, bool):
        raise source.error("reference", f"reference is true or false, got {reference!r}")
    if size is not None and (isinstance(size, bool) or not isinstance(size, int | str)):
        raise source.error("size", f'size is a number of bytes, or text such as "4 MB"; got {size!r}')
    return Selection(
        source.path, _problems(source), source.terms("traits", parse_trait), source.terms("modes", parse_mode),
        source.terms("tiles", parse_tile), source.terms("arch_stages", parse_arch_stages),
        source.terms("solvers", _solver), None if size is None else source.parsed("size", str(size), parse_size),
        reference, {key: source.line(key) for key in source.document},
    )  # fmt: skip


@dataclass(frozen=True)
class _Source:
    """The file as it was read."""

    path: Path
    rows: list[str]
    document: dict[str, Any]

    def line(self, key: str, item: str = "") -> int:
        """The line of a key, or of an item of its array; that of the key where the item's cannot be told."""
        begin = line_of(self.rows, key, 1)
        return next((at for at in range(begin, len(self.rows) + 1) if item and item in self.rows[at - 1]), begin)

    def error(self, key: str, message: str, item: str = "") -> FileFormatError:
        return FileFormatError(f"{self.path}:{self.line(key, item)}: {message}")

    def items(self, key: str) -> tuple[str, ...]:
        """The texts of an array; none for a key that the file has not."""
        if key not in self.document:
            return ()
        value = self.document[key]
        if not isinstance(value, list) or not all(isinstance(each, str) and each.strip() for each in value):
            raise self.error(key, f'{key} is an array of texts, such as {key} = ["..."]; got {value!r}')
        if not value:
            raise self.error(key, f"{key} is empty: nothing would be selected; leave it out to select any")
        return tuple(value)

    def parsed(self, key: str, item: str, parse: Callable[[str], Term]) -> Term:
        try:
            return parse(item)
        except (ArgumentError, CommandError) as error:
            raise self.error(key, str(error), item) from None

    def terms(self, key: str, parse: Callable[[str], Term]) -> tuple[Term, ...]:
        return tuple(dict.fromkeys(self.parsed(key, item, parse) for item in self.items(key)))


def _read(path: Path) -> _Source:
    text, document = read_toml(path, MOST_BYTES)
    return _Source(path, text.splitlines(), document)


def _solver(pattern: str) -> str:
    """A pattern that names a solver, or several."""
    if not any(limited_by((pattern,), family) for family in SOLVERS):
        known = ", ".join(name for names in SOLVERS.values() for name in names)
        raise ArgumentError(f"solver {pattern!r} does not exist; known: {known}")
    return pattern


def _problems(source: _Source) -> tuple[Signature, ...]:
    """The problems of the lists, and behind them those of the file itself."""
    found: list[Signature] = []
    for name in source.items("lists"):
        path = source.path.parent / name
        if not path.is_file():
            raise source.error("lists", f"list {str(path)!r} is no file", name)
        for number, text in read_lines(path):
            found += _expanded(text, f"{path}:{number}", len(found))
    for text in source.items("problems"):
        found += _expanded(text, f"{source.path}:{source.line('problems', text)}", len(found))
    return tuple(dict.fromkeys(found))


def _expanded(text: str, place: str, already: int) -> Sequence[Signature]:
    try:
        commands = expand_command(checked(text))
        if already + len(commands) > MOST_COMMANDS:
            raise CommandError(f"with this line the selection has more than {MOST_COMMANDS} problems")
        return list(_signatures(commands))
    except CommandError as error:
        raise FileFormatError(f"{place}: {error}") from None


def _signatures(commands: Iterable[str]) -> Iterable[Signature]:
    for command in commands:
        for _, signature in parse_problem(command).signatures:
            yield signature
