"""Driver commands with ranges: one command for each combination of their values.

A flag that takes an integer may have a list of integers and ranges instead::

    -n 1,2,8            these
    -n 1..64            each from 1 to 64
    -H 7..224+7         from 7 to 224 in steps of 7
    -n 1..64*2          1, 2, 4, ... 64
    -n 1,2,4..64*2      items of a list may be ranges
    -H 7..224 -W =H     the value that -H has
"""

from __future__ import annotations

import itertools
import math
import re
import shlex
from collections.abc import Sequence

from tilesmith.errors import CommandError
from tilesmith.problems.driver import is_key
from tilesmith.problems.driver.flags import Flag, flags_of
from tilesmith.problems.driver.tokens import split_command

MOST_COMMANDS = 1 << 16  # of a whole selection: each becomes a plan, a hundred of which are made in a second at best
_RANGE = re.compile(r"([0-9]{1,19})\.\.([0-9]{1,19})(?:([+*])([0-9]{1,19}))?")
_FORMS = "a range is written 1..64, 7..224+7 (steps of 7) or 1..64*2 (doubling)"


def expand_command(text: str) -> tuple[str, ...]:
    """The commands that a command with ranges stands for; the last range varies fastest.

    Args:
        text: A driver command, or a key, which is returned as it is.

    Returns:
        Commands without ranges, at most ``MOST_COMMANDS``.

    Raises:
        CommandError: A range is malformed or empty, its flag takes no integer, or there are too many combinations.
    """
    if is_key(text):
        return (text,)
    base, given = split_command(text)
    flags = {flag.long: flag for flag in flags_of(base)}
    values = {name: _values(base, flags[name], value) for name, value in given.items()}
    same = {name: _other(base, flags, values, name) for name, each in values.items() if each[0].startswith("=")}
    count = math.prod(len(each) for each in values.values())
    if count > MOST_COMMANDS:
        raise CommandError(f"{base}: its ranges have {count} combinations; a command may have {MOST_COMMANDS}")
    if count == 1 and not same:
        return (text,)
    found = []
    for point in itertools.product(*values.values()):
        at = dict(zip(values, point, strict=True))
        at |= {name: at[other] for name, other in same.items()}
        found.append(shlex.join([base, *(word for name, value in at.items() for word in (f"--{name}", value))]))
    return tuple(found)


def _values(base: str, flag: Flag, text: str) -> Sequence[str]:
    """The values of a flag; its text alone where that is no range."""
    if flag.kind != "int" or not (".." in text or "," in text):
        return (text,)
    found: list[str] = []
    for item in text.split(","):
        matched = _RANGE.fullmatch(item)
        if matched is None:
            if ".." in item:
                raise CommandError(f"{base}: flag {flag} {item!r} is no range; {_FORMS}")
            found.append(item)
            continue
        first, last, step = int(matched[1]), int(matched[2]), int(matched[4] or 1)
        if first > last:
            raise CommandError(f"{base}: flag {flag} {item!r} is empty: {first} is more than {last}")
        if step < (2 if matched[3] == "*" else 1) or (matched[3] == "*" and not first):
            raise CommandError(f"{base}: flag {flag} {item!r} never ends; {_FORMS}")
        each = _multiplied(first, last, step) if matched[3] == "*" else range(first, last + 1, step)
        if len(found) + len(each) > MOST_COMMANDS:
            raise CommandError(f"{base}: flag {flag} {item!r} has {len(each)} values; it may have {MOST_COMMANDS}")
        found += map(str, each)
    return tuple(dict.fromkeys(found))


def _multiplied(first: int, last: int, factor: int) -> Sequence[int]:
    found = []
    while first <= last:
        found.append(first)
        first *= factor
    return found


def _other(base: str, flags: dict[str, Flag], values: dict[str, Sequence[str]], name: str) -> str:
    """The flag whose value the flag ``name`` takes, written ``=H`` or ``=in_h``."""
    wanted = values[name][0][1:]
    other = next((flag.long for flag in flags.values() if wanted and wanted in (flag.long, flag.short)), None)
    if other is None or other not in values or values[other][0].startswith("="):
        raise CommandError(
            f"{base}: flag {flags[name]} {values[name][0]!r} names no flag of this command that has a value of its own"
        )
    return other
