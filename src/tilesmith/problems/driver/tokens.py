"""From text to flag values: every flag takes exactly one value, and the last of duplicates wins."""

from __future__ import annotations

import math
import re
import shlex
from pathlib import PurePosixPath

from tilesmith.errors import CommandError, ProblemError
from tilesmith.problems.driver.flags import CONV_BASES, GEMM_BASES, Flag, Value, flags_of, is_foreign_base
from tilesmith.problems.layouts import parse_layout
from tilesmith.problems.limits import MAX_SIZE, check_length
from tilesmith.spelling import among, did_you_mean

_COMMENT = re.compile(r"(^|\s)#.*")
_INTEGER = re.compile(r"[+-]?[0-9]+")
DRIVERS = ("MIOpenDriver", "tilesmith")


def split_command(text: str) -> tuple[str, dict[str, str]]:
    """``(base, {long name: value text})`` as given, without ``# comments`` and whatever precedes the driver's name."""
    check_length("command", text, CommandError)
    try:
        words = shlex.split(_COMMENT.sub("", text))
    except ValueError as error:
        raise CommandError(f"command {text!r}: {error}") from None
    for place in reversed(range(len(words))):
        if PurePosixPath(words[place]).name in DRIVERS:
            words = words[place + 1 :]
            break
    if not words:
        raise CommandError("a command is missing: it begins with " + ", ".join((*CONV_BASES, *GEMM_BASES)))
    base, *rest = words
    if base not in CONV_BASES and base not in GEMM_BASES:
        known = (*CONV_BASES, *GEMM_BASES)
        if is_foreign_base(base):
            raise CommandError(f"command {base!r} is MIOpenDriver's; only conv and gemm exist here: {', '.join(known)}")
        raise CommandError(f"command {base!r} does not exist{among(base, known)}")
    names = {name: flag for flag in flags_of(base) for name in _spellings(flag)}
    given: dict[str, str] = {}
    for place in range(0, len(rest), 2):
        flag = names.get(rest[place])
        if flag is None:
            what = "is no flag" if rest[place].startswith("-") else "stands where a flag should (each takes one value)"
            meant = did_you_mean(rest[place], names) if rest[place].startswith("--") else ""
            raise CommandError(f"{base}: {rest[place]!r} {what}{meant}")
        if place + 1 == len(rest):
            raise CommandError(f"{base}: flag {flag} has no value")
        if rest[place + 1] in names:
            raise CommandError(f"{base}: flag {flag} has no value, flag {rest[place + 1]!r} follows it")
        given[flag.long] = rest[place + 1]
    return base, given


def _spellings(flag: Flag) -> tuple[str, ...]:
    return (f"--{flag.long}", f"-{flag.short}") if flag.short else (f"--{flag.long}",)


def read_value(base: str, flag: Flag, text: str, ranged: bool = True) -> Value:
    """The value of one flag; ``ranged=False`` reads integers of any size."""
    if flag.kind == "int":
        return _read_integer(base, flag, text, ranged)
    if flag.kind == "real":
        return _read_real(base, flag, text)
    if flag.kind == "layout":
        return _read_layout(base, flag, text)
    if flag.kind == "sizes" and not re.fullmatch(r"([0-9]{1,63}(x[0-9]{1,63})*)?", text):
        raise CommandError(f"{base}: flag {flag} {text!r} is no list of integers such as 64x8x1")
    return text


def _read_integer(base: str, flag: Flag, text: str, ranged: bool) -> int:
    if text == "" and flag.long == "bias":  # its default in MIOpen
        return 0
    if not _INTEGER.fullmatch(text):
        same = flag.long.startswith("pad_") and text.lower() in ("same", "valid")
        hint = f"; type -z {text.lower()}" if same else ""
        raise CommandError(f"{base}: flag {flag} {text!r} is not an integer{hint}")
    # Python refuses to read thousands of digits, and none of that many is in a range.
    value = int(text) if len(text) < 64 else MAX_SIZE**8
    if ranged and not flag.least <= value <= flag.most:
        most = "2^31-1" if flag.most == MAX_SIZE else str(flag.most)
        if flag.least == flag.most:
            name = f"-{flag.short}" if flag.short else f"--{flag.long}"
            raise CommandError(
                f"{base}: flag {flag} {text} is not supported: {flag.meaning}; type {name} {most}, or leave it out"
            )
        raise CommandError(f"{base}: flag {flag} {text} is not from {flag.least} to {most}")
    return value


def _read_real(base: str, flag: Flag, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise CommandError(f"{base}: flag {flag} {text!r} is not a number") from None
    if not math.isfinite(value):
        raise CommandError(f"{base}: flag {flag} {text!r} is not finite")
    return value


def _read_layout(base: str, flag: Flag, text: str) -> str:
    try:
        return str(parse_layout(text)) if text else ""
    except ProblemError as error:
        raise CommandError(f"{base}: flag {flag}: {error}") from None
