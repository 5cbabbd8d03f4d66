"""Limits on input: whole numbers in range (any index, but neither bool nor float), and the length of text.

Real commands and keys have some hundred characters, lists some megabytes. Longer text is a mistake, such as a file of
another kind. It is refused before it is read: parsing it would cost seconds for each megabyte.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Protocol

from tilesmith.errors import ProblemError, TilesmithError

MAX_SIZE = 2**31 - 1
MAX_STRIDE = 2**62
MAX_TEXT = 1 << 16  # characters of a driver command, a key, a line of a find-db
MAX_FILE = 1 << 26  # bytes of a list of commands
_POWERS = {MAX_SIZE: "2^31-1", MAX_STRIDE: "2^62"}


class _Sized(Protocol):
    @property
    def is_empty(self) -> bool: ...


def refuse_empty(problem: _Sized) -> None:
    """Raise ``ProblemError`` for a problem that has no elements."""
    if problem.is_empty:
        raise ProblemError(
            f"{problem} has no elements: no kernel computes it, and there is nothing to tune or store; "
            "get_launchable, conv and gemm give its result"
        )


def whole_number(name: str, value: object, least: int, most: int) -> int:
    """``value`` as an int from ``least`` to ``most``; ``ProblemError`` names the value and the rule."""
    number = None
    if not isinstance(value, bool):
        try:
            number = operator.index(value)  # type: ignore[arg-type]  # the test is the call
        except TypeError:
            number = None
    if number is None or not least <= number <= most:
        raise ProblemError(f"{name} must be an integer from {least} to {_POWERS.get(most, most)}, got {value!r}")
    return number


def read_limit(value: object) -> int | None:
    """A ``workspace_limit``: bytes, or None for no limit."""
    return None if value is None else whole_number("workspace_limit", value, 0, MAX_STRIDE)


def whole_numbers(name: str, values: object, least: int, most: int) -> tuple[int, ...]:
    """A tuple of such numbers, from any iterable but a string."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ProblemError(f"{name} must be a sequence of integers, got {values!r}")
    try:
        items = tuple(values)
    except TypeError:  # an array without axes says that it is iterable
        raise ProblemError(f"{name} must be a sequence of integers, got {values!r}") from None
    return tuple(whole_number(f"{name}[{i}]", item, least, most) for i, item in enumerate(items))


def check_length(what: str, text: str, error: type[TilesmithError]) -> None:
    """Raise ``error`` for text that is too long to be read."""
    if isinstance(text, str) and len(text) > MAX_TEXT:
        raise error(f"{what} {text[:40]!r}... has {len(text)} characters, and at most {MAX_TEXT} characters are read")
