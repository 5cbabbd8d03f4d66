"""Patterns of problems in a tuning spec: a glob over keys, or a part of a driver command.

``conv1;fwd;*;groups=1;*`` is a glob over the problem's key. ``convbfp16 -n 1..8 -c 64,128 -y 3 -x 3`` means every
problem whose driver command has these flags: a value is exact, a range ``A..B`` (either end may be left out), a glob,
or several of them separated by commas. Flags that are not named, and the command's name, may have any value.
Flags that say how to run (``-t``, ``-V``, ``-i``, ...) are no part of a problem and are ignored.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache

from tilesmith.errors import CommandError, ProblemError, TilesmithError
from tilesmith.problems.driver import command_of, parse_command
from tilesmith.problems.driver.flags import CONV_BASES, GEMM_BASES, Flag, Value, flags_of
from tilesmith.problems.key_text import VERSIONS
from tilesmith.problems.keys import parse_key
from tilesmith.problems.limits import check_length
from tilesmith.problems.rewrite import Signature

_HOW_TO_RUN = frozenset({
    "iter", "time", "wall", "search", "solution", "verify", "verification_cache", "gpualloc", "dump_output",
    "printconv", "in_data", "weights", "in_bias", "dout_data",
})  # fmt: skip
_RANGE = re.compile(r"([0-9]*)\.\.([0-9]*)")
_GLOB = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Pattern:
    """``key`` is a glob over keys, or empty; ``bases`` and ``flags`` (long name -> value) are those of a command.

    ``exact`` says that it names one problem; ``whole`` are the keys of a command that can be run as it stands.
    """

    key: str = ""
    exact: bool = False
    bases: tuple[str, ...] = ()
    flags: tuple[tuple[str, str], ...] = ()
    whole: frozenset[str] = frozenset()

    def matches(self, signature: Signature) -> bool:
        """Whether the problem, as it is spelled or in its canonical spelling, is one of the pattern's."""
        key = signature.canonical.key()
        if self.key:
            return fnmatchcase(key, self.key) or key == self.key
        return key in self.whole or any(
            self._fits(*command)
            for each in dict.fromkeys((signature, signature.canonical))
            if (command := _command(each)) is not None
        )

    def _fits(self, base: str, values: Mapping[str, Value]) -> bool:
        return base in self.bases and all(_value_fits(name, text, values[name]) for name, text in self.flags)


def parse_pattern(text: str) -> Pattern:
    """Read a pattern; ``ProblemError`` names what it breaks."""
    check_length("pattern", text, ProblemError)
    if ";" in text or text.startswith(VERSIONS):
        return _key_pattern(text)
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ProblemError(f"problem {text!r}: {error}") from None
    if not words:
        raise ProblemError("a problem is a key, a glob over keys, or a part of a driver command; got nothing")
    bases = (*CONV_BASES, *GEMM_BASES)
    if not words[0].startswith("-"):
        base = words.pop(0)
        bases = tuple(name for name in bases if fnmatchcase(name, base))
        if not bases:
            raise ProblemError(
                f"problem {text!r}: command {base!r} does not exist; known: {', '.join((*CONV_BASES, *GEMM_BASES))}"
            )
    given = []
    for place in range(0, len(words), 2):
        if place + 1 == len(words):
            raise ProblemError(f"problem {text!r}: flag {words[place]!r} has no value")
        given.append((words[place], words[place + 1]))
    return _flag_pattern(text, bases, given)


def _key_pattern(text: str) -> Pattern:
    if _GLOB.search(text):
        versions = tuple(f"{version};" for version in VERSIONS)
        if not any(version.startswith(_GLOB.split(text)[0][: len(version)]) for version in versions):
            raise ProblemError(f"problem {text!r} is no key of a problem (they begin with {' or '.join(versions)})")
        return Pattern(key=text)
    return Pattern(key=parse_key(text).key(), exact=True)


def _flag_pattern(text: str, bases: tuple[str, ...], given: list[tuple[str, str]]) -> Pattern:
    """The pattern of flags; a flag that only some of the commands have leaves those."""
    left, found = bases, {}
    for word, value in given:
        having = {base: flag for base in left if (flag := _flag(base, word)) is not None}
        if not having:
            known = bases[0] if len(bases) == 1 else "any of " + ", ".join(bases)
            raise ProblemError(f"problem {text!r}: {word!r} is no flag of {known}")
        left = tuple(having)
        flag = next(iter(having.values()))
        if any(other.long != flag.long for other in having.values()):
            raise ProblemError(f"problem {text!r}: {word} means different things; begin with the command's name")
        if flag.long in _HOW_TO_RUN:
            continue
        _check_value(text, flag, value)
        found[flag.long] = value
    return Pattern(bases=left, flags=tuple(found.items()), whole=_whole(text))


def _flag(base: str, word: str) -> Flag | None:
    return next(
        (flag for flag in flags_of(base) if word in (f"--{flag.long}", f"-{flag.short}" * bool(flag.short))), None
    )


def _check_value(text: str, flag: Flag, value: str) -> None:
    for part in value.split(","):
        bounds = _RANGE.fullmatch(part)
        if bounds is not None and bounds[1] and bounds[2] and int(bounds[1]) > int(bounds[2]):
            raise ProblemError(f"problem {text!r}: flag {flag} {part} is an empty range")
        if flag.kind == "int" and bounds is None and not _GLOB.search(part) and not re.fullmatch(r"[+-]?[0-9]+", part):
            raise ProblemError(f"problem {text!r}: flag {flag} {part!r} is no integer, range (1..8) or glob")


def _whole(text: str) -> frozenset[str]:
    """The keys of the problems of a command that is whole: its flags may say the same in other words."""
    try:
        return frozenset(signature.canonical.key() for _, signature in parse_command(text).signatures)
    except TilesmithError:
        return frozenset()


@lru_cache(maxsize=1024)
def _command(signature: Signature) -> tuple[str, Mapping[str, Value]] | None:
    """Its name and the value of each flag; None for a problem that no command describes."""
    try:
        command = parse_command(command_of(signature))
    except CommandError:
        return None
    return command.base, dict(command.values)


def _value_fits(name: str, pattern: str, value: Value) -> bool:
    return any(_part_fits(name, part, value) for part in pattern.split(","))


def _part_fits(name: str, part: str, value: Value) -> bool:
    bounds = _RANGE.fullmatch(part)
    if bounds is not None and isinstance(value, int):
        return int(bounds[1] or 0) <= value and (not bounds[2] or value <= int(bounds[2]))
    if _GLOB.search(part):
        return fnmatchcase(str(value).upper(), part.upper())
    if name == "forw" and isinstance(value, int):  # a mask of directions, 0 for all of them
        return int(part) == 0 or bool(int(part) & value)
    if isinstance(value, str):
        return value.upper() == part.upper()
    try:
        return float(part) == value
    except ValueError:
        return False
