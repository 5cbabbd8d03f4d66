"""The problems that a verb works on: a file of driver commands and keys, or one on the command line."""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

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
from tilesmith.problems.driver.benchdnn import is_benchdnn
from tilesmith.problems.driver.flags import CONV_BASES, GEMM_BASES, flags_of
from tilesmith.problems.keys import parse_key
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.short_name import short_name
from tilesmith.spelling import did_you_mean

_MOST_FILES = 10_000  # of a folder, of which one may have been meant


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
    def short(self) -> str:
        """The problem's short name, for lines that people read."""
        return short_name(self.signature)

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
    _refuse_unknown(words)
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


def _refuse_unknown(words: Sequence[str]) -> None:
    """Raise ``CommandError`` for the first word that looks like an option, and is neither the verb's nor a flag.

    A line of benchdnn has options of its own.
    """
    if is_benchdnn(" ".join(words)):
        return
    ctx = click.get_current_context(silent=True)
    own = [name for each in ctx.command.params for name in each.opts if name.startswith("--")] if ctx else []
    base = next((word for word in words if word in CONV_BASES or word in GEMM_BASES), "")
    flags = [f"--{flag.long}" for flag in flags_of(base)] if base else []
    for word in words:
        if word.startswith("--") and " " not in word and word not in flags:
            of = f"a flag of {base} or an option" if base else "an option"
            where = f" of `{ctx.command_path}`" if ctx else ""
            raise CommandError(f"{word!r} is not {of}{where}{did_you_mean(word.partition('=')[0], [*flags, *own])}")


def _like(name: str) -> str:
    """A file of the same folder, or a base command, that the name may have meant."""
    folder, _, last = name.rpartition("/")
    try:
        files = os.listdir(folder or ".")[:_MOST_FILES]
    except (OSError, ValueError):
        files = []
    return did_you_mean(last, [*files, *CONV_BASES, *GEMM_BASES])


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
        raise FileFormatError(f"{name!r} is neither a file nor a driver command or key{_like(name)}")
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
