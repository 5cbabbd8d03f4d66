"""The tuning spec: a TOML file of choices that come before every database (``TILESMITH_TUNING_SPEC_PATH``).

Each ``[[choice]]`` names problems by a pattern (``dispatch/spec/pattern.py``), a ``solver``, and, where wanted, a
``target`` (a glob over names such as ``x86_64-v4:*``) and a ``config`` (``name=integer ...``; what it leaves out is the
solver's default). The last choice that fits a problem wins.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

from tilesmith import env
from tilesmith.dispatch.choice import SPEC, Choice
from tilesmith.dispatch.choose import Option, marked
from tilesmith.dispatch.spec.pattern import Pattern, parse_pattern
from tilesmith.errors import FileFormatError, ProblemError, TargetError
from tilesmith.problems.rewrite import Signature
from tilesmith.reading_toml import line_of, read_toml
from tilesmith.solvers.old_names import has_old_names, read_config
from tilesmith.solvers.solver import Config, SearchSpace
from tilesmith.solvers.table import all_solvers
from tilesmith.spelling import among
from tilesmith.targets.cpu import CPU_TARGETS
from tilesmith.targets.cuda import GPU_ARCHS
from tilesmith.targets.names import parse_target
from tilesmith.targets.target import Target

MOST_BYTES = 1 << 22  # tens of thousands of choices
_FIELDS = ("problem", "target", "solver", "config")
_log = logging.getLogger("tilesmith.dispatch")
_HEADER = re.compile(r"""\s*\[\[\s*["']?choice["']?\s*\]\]""")


@dataclass(frozen=True)
class Entry:
    """One choice. ``lines`` holds the line of each of its fields, and under ``""`` that of the choice itself."""

    pattern: Pattern
    target: str
    solver: str
    config: Config | None
    path: Path
    lines: Mapping[str, int] = field(hash=False)

    def place(self, name: str = "") -> str:
        """``FILE:LINE`` of a field."""
        return _place(self.path, self.lines, name)

    def fits(self, signature: Signature, target: Target) -> bool:
        # A pattern without a card, such as ``x86_64-v4:2``, is for every card.
        named = fnmatchcase(target.name, self.target) or fnmatchcase(target.name, f"{self.target}:*")
        return named and self.pattern.matches(signature)


def spec_choice(signature: Signature, target: Target, options: tuple[Option, ...]) -> Choice | None:
    """The choice of the environment's tuning spec for a problem; None without a spec, or without a choice in it.

    A choice by a pattern is skipped if its solver cannot compute the problem.
    Raises ``FileFormatError`` for a file that cannot be read, or a choice that the solver table contradicts.
    """
    path = env.TUNING_SPEC_PATH.get()
    if path is None:
        return None
    for entry in reversed(read_spec(path)):
        if not entry.fits(signature, target):
            continue
        option = _option(entry, options)
        if option is not None:
            config = _config(entry, option, target)
            shown = marked(options, option.candidate.name, config)
            return Choice(option.candidate.name, config, SPEC, entry.place(), None, shown)
    return None


def _option(entry: Entry, options: tuple[Option, ...]) -> Option | None:
    """The candidate that an entry names; None if the entry is a pattern and the solver cannot compute the problem."""
    option = next((o for o in options if o.candidate.name == entry.solver), None)
    if option is None:
        if not entry.pattern.exact:
            return None
        known = among(entry.solver, (o.candidate.name for o in options))
        raise FileFormatError(
            f"{entry.place('solver')}: solver {entry.solver!r} does not exist for this problem{known}"
        )
    if not option.accepted:
        if not entry.pattern.exact:
            return None
        raise FileFormatError(
            f"{entry.place('solver')}: solver {entry.solver} cannot compute this problem: {option.candidate.verdict}"
        )
    return option


def _config(entry: Entry, option: Option, target: Target) -> str:
    """The config of an entry: its values, the solver's defaults elsewhere."""
    if entry.config is None:
        return option.config
    solver, geometry = option.candidate.solver, option.candidate.geometry
    space: SearchSpace = solver.search_space(geometry, target)
    for name, value in entry.config.values:
        where = f"{entry.place('config')}: config {name}={value}"
        if name not in space.axes:
            raise FileFormatError(f"{where}: {entry.solver} has no {name!r}{among(name, space.axes)}")
        if value not in space.axes[name]:
            allowed = ", ".join(map(str, space.axes[name]))
            raise FileFormatError(f"{where} is outside the search space of {entry.solver}; {name} is one of {allowed}")
    config = read_config(entry.solver, option.config).replace(**dict(entry.config.values))
    if not space.contains(config):
        raise FileFormatError(
            f"{entry.place('config')}: config {config} is outside the search space of {entry.solver}: "
            "its values do not go together"
        )
    return str(config)


def read_spec(path: Path) -> tuple[Entry, ...]:
    """The choices of a file in its order; ``FileFormatError`` names the line of what is wrong."""
    try:
        stamp = path.stat()
        return _read(path, stamp.st_mtime_ns, stamp.st_size)
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be read: {error.strerror or error}") from None


@lru_cache(maxsize=8)
def _read(path: Path, mtime: int, size: int) -> tuple[Entry, ...]:
    """The choices of the file as it is now: its time and size are part of the memo's key."""
    text, document = read_toml(path, MOST_BYTES)
    choices = document.pop("choice", [])
    unknown = next(iter(document), None)
    if unknown is not None:
        line = line_of(text.splitlines(), unknown, 1)
        raise FileFormatError(f"{path}:{line}: {unknown!r} does not exist; a tuning spec consists of [[choice]] tables")
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        raise FileFormatError(f"{path}:1: choice is an array of tables: write each as [[choice]]")
    locations = _locations(text, choices)
    entries = tuple(_entry(path, choice, lines) for choice, lines in zip(choices, locations, strict=True))
    _note_old_names(choices, entries)
    return entries


def _note_old_names(choices: Sequence[Mapping[str, str]], entries: Sequence[Entry]) -> None:
    """Log once that a file uses old names of axes, with its first config in the new names."""
    for choice, entry in zip(choices, entries, strict=True):
        if entry.config is not None and has_old_names(entry.solver, choice["config"]):
            _log.warning(
                "%s: axes have new names (the old ones are read, too): config = \"%s\"",
                entry.place("config"), entry.config,
            )  # fmt: skip
            return


def _entry(path: Path, choice: dict[str, Any], lines: Mapping[str, int]) -> Entry:
    for name, value in choice.items():
        place = _place(path, lines, name)
        if name not in _FIELDS:
            raise FileFormatError(f"{place}: {name!r} does not exist in a choice{among(name, _FIELDS)}")
        if not isinstance(value, str) or not value.strip():
            raise FileFormatError(f"{place}: {name} is text in quotes, got {value!r}")
    for name in ("problem", "solver"):
        if name not in choice:
            raise FileFormatError(f"{_place(path, lines, '')}: a choice needs a {name}")
    solver, known = choice["solver"], [each.name for each in all_solvers()]
    if solver.partition("@")[0] not in known:
        where = _place(path, lines, "solver")
        raise FileFormatError(f"{where}: solver {solver!r} does not exist{among(solver, known)}")
    try:
        pattern = parse_pattern(choice["problem"])
    except ProblemError as error:
        raise FileFormatError(f"{_place(path, lines, 'problem')}: {error}") from None
    target = choice.get("target", "*")
    try:
        _check_target(target)
    except TargetError as error:
        raise FileFormatError(f"{_place(path, lines, 'target')}: {error}") from None
    text = choice.get("config", "")
    try:
        config = read_config(solver, text) if text else None
    except ValueError:
        raise FileFormatError(f"{_place(path, lines, 'config')}: config {text!r} is not NAME=INTEGER ...") from None
    return Entry(pattern, target, solver, config, path, lines)


def _check_target(text: str) -> None:
    """Raise an error for a misspelt target: its choice would never apply."""
    arch = text.partition(":")[0]
    if not re.search(r"[*?\[]", text):
        parse_target(text)
    elif not any(fnmatchcase(known, arch) for known in (*CPU_TARGETS, *GPU_ARCHS)):
        raise TargetError(f"target {text!r} fits no arch; known: {', '.join((*CPU_TARGETS, *GPU_ARCHS))}")


# --- lines ------------------------------------------------------------------------------------------------------------


def _place(path: Path, lines: Mapping[str, int], name: str) -> str:
    line = lines.get(name) or lines.get("")
    return f"{path}:{line}" if line else str(path)


def _locations(text: str, choices: list[dict[str, Any]]) -> list[dict[str, int]]:
    """The lines of each choice and its fields, which the parser does not tell; empty where they cannot be known."""
    rows = text.splitlines()
    heads = [number for number, row in enumerate(rows, 1) if _HEADER.match(row)]
    if len(heads) != len(choices):  # written in one of TOML's other ways
        return [{} for _ in choices]
    ends = [*heads[1:], len(rows) + 1][: len(heads)]
    return [
        {"": head} | {name: line_of(rows[: end - 1], name, head) for name in choice}
        for choice, head, end in zip(choices, heads, ends, strict=True)
    ]
