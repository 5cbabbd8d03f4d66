"""The problems that a verb works on: a file of driver commands and keys, or one on the command line."""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilesmith.cli.terminal import complain
from tilesmith.errors import CommandError, FileFormatError, ProblemError
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.driver import (
    DriverCommand,
    KeyedProblem,
    RunOptions,
    calls_of,
    command_or_key,
    is_key,
    parse_problem,
    read_commands,
)
from tilesmith.problems.keys import parse_key
from tilesmith.problems.rewrite import Signature


@dataclass(frozen=True)
class Item:
    """One direction of one command, or the problem of a key (``command`` is the key then); and its number of calls."""

    command: str
    direction: str
    signature: Signature
    options: RunOptions
    calls: int = 1

    def __str__(self) -> str:
        return f"{self.command} ({self.direction})"

    @property
    def row(self) -> dict[str, Any]:
        """The values that begin a row of JSON."""
        return {"command": self.command, "key": self.signature.key(), "direction": self.direction}


@dataclass(frozen=True)
class Listing:
    """The problems read; ``bad`` counts the lines or directions that could not be read, each of them reported."""

    items: tuple[Item, ...]
    bad: int

    @property
    def status(self) -> int:
        """The exit status that the reading alone asks for."""
        return 2 if self.bad else 0


def read_problems(words: Sequence[str], dtype: str = "") -> Listing:
    """The problems named by ``words``: the path of a file (``-``: standard input), or a driver command or key.

    A bad line of a file is reported with its number, and the rest is read. ``dtype`` gives every problem that element
    type; one that does not exist with it is reported, too. Raises ``CommandError`` for a bad command,
    ``FileFormatError`` for a file that cannot be read.
    """
    # Of a command that is longer than file names may be, os.path says that it is no file; a Path would raise.
    if len(words) == 1 and (not (is_key(words[0]) or " " in words[0].strip()) or os.path.isfile(words[0])):
        commands, bad = _file(words[0])
    elif words and (words[0] == "-" or os.path.isfile(words[0])):
        raise CommandError(f"{words[1]!r} stands behind the file {words[0]}; options begin with --, see --help")
    else:
        text = " ".join(words)
        commands, bad = [(text, parse_problem(text), 1)], 0
    items = tuple(
        Item(text, direction, signature, command.options, calls)
        for text, command, calls in commands
        for direction, signature in command.signatures
    )
    return _all_retyped(items, bad, dtype) if dtype else Listing(items, bad)


def problem_keys(words: tuple[str, ...]) -> frozenset[str] | None:
    """The keys of what the words name: keys, a file of commands, or a command; None for no words."""
    if not words:
        return None
    if all(";" in word for word in words):
        return frozenset(parse_key(word).key() for word in words)
    listing = read_problems(words)
    if listing.bad:
        raise ProblemError(f"{listing.bad} lines of {words[0]} are no problems; see above")
    return frozenset(item.signature.canonical.key() for item in listing.items)


def _file(name: str) -> tuple[list[tuple[str, DriverCommand | KeyedProblem, int]], int]:
    path = "/dev/stdin" if name == "-" else name
    if name != "-" and not (name.strip() and os.path.exists(path)):
        raise FileFormatError(f"{name!r} is neither a file nor a driver command or key")
    commands, bad = [], 0
    for line in read_commands(path):
        if line.command is None:
            complain(str(line.error))
            bad += 1
        else:
            commands.append((line.text.partition("#")[0].strip(), line.command, calls_of(line.text)))
    return commands, bad


def _all_retyped(items: Sequence[Item], bad: int, dtype: str) -> Listing:
    """The problems that exist with this element type; each other problem is reported."""
    kept = []
    for item in items:
        try:
            kept.append(_retyped(item, dtype))
        except (CommandError, ProblemError) as error:
            complain(f"{item} as {dtype}: {error}")
            bad += 1
    return Listing(tuple(kept), bad)


def _retyped(item: Item, dtype: str) -> Item:
    """The same problem of another element type, with the type's own result and accumulation."""
    own = {"dtype": dtype, "acc_dtype": ""}
    names = ("input", "kernel", "output") if isinstance(item.signature, ConvSignature) else ("a", "b", "c")
    changes = own | {f"{name}_dtype": "" for name in names}
    signature = replace(item.signature, **changes)  # type: ignore[arg-type]
    return replace(item, signature=signature, command=command_or_key(signature))
