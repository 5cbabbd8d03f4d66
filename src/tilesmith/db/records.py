"""The records of databases: a config that was measured, with its evidence, and how a search went.

A record checks itself when it is made, wherever its values come from (a row, a line, a file, a kept decision, a search
of this process): a field outside its rule raises ``RecordError``, so that no reader of a record meets one.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any, Final

from tilesmith.errors import RecordError

OK = "ok"
FAILED = "failed"
STATUSES = (OK, FAILED)
TUNE = "tune"  # the origin of what a search measured
UNTUNED = "untuned"  # the origin of what a search measured as the choice that is made without one


@dataclass(frozen=True)
class Name:
    """Text that programs compare, and that stands on one line: printable ASCII of ``least`` to ``most`` characters."""

    most: int
    least: int = 1

    def breaks(self, value: Any) -> str:
        """Why ``value`` is none; empty if it is one."""
        if type(value) is str and self.least <= len(value) <= self.most and value.isascii() and value.isprintable():
            return ""
        return f"{self.least} to {self.most} printable ASCII characters"


@dataclass(frozen=True)
class Text:
    """Free text, of ``most`` characters."""

    most: int

    def breaks(self, value: Any) -> str:
        return "" if type(value) is str and len(value) <= self.most else f"text of at most {self.most} characters"


@dataclass(frozen=True)
class Count:
    """An integer from 0 to ``most``."""

    most: int

    def breaks(self, value: Any) -> str:
        return "" if type(value) is int and 0 <= value <= self.most else f"an integer from 0 to {self.most}"


@dataclass(frozen=True)
class Number:
    """A finite number from ``least`` to ``most``; None where ``known`` is false."""

    least: float
    most: float
    known: bool = False

    def breaks(self, value: Any) -> str:
        if value is None and not self.known:
            return ""
        if type(value) in (float, int) and self.least <= value <= self.most:
            return ""
        return f"a number from {self.least:g} to {self.most:g}"


@dataclass(frozen=True)
class OneOf:
    """One of some words."""

    words: tuple[str, ...]

    def breaks(self, value: Any) -> str:
        return "" if type(value) is str and value in self.words else f"one of {', '.join(self.words)}"


@dataclass(frozen=True)
class Date:
    """A day, or a second of one in UTC, from 1970 on; nothing where it is not known."""

    def breaks(self, value: Any) -> str:
        if type(value) is str and (not value or _DATE.fullmatch(value)):
            return ""
        return "a date such as 2026-01-31T12:00:00Z, from 1970 to 9999"


_DATE = re.compile(
    r"(?:19[7-9][0-9]|[2-9][0-9]{3})-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
    r"(?:T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z)?"
)
_DAY_US = 86_400e6
_LONG = Text(65_536)
_PROBLEM, _TARGET = Name(4096), Name(80)
REASON_MOST: Final = 2000  # characters that ``failed`` keeps

Rule = Name | Text | Count | Number | OneOf | Date

RECORD_RULES: Final[dict[str, Rule]] = {
    "problem": _PROBLEM, "target": _TARGET, "solver": Name(200), "config": Name(2000, least=0),
    "revision": Count(10**9 - 1), "time_us": Number(1e-6, _DAY_US), "spread_us": Number(0.0, _DAY_US),
    "samples": Count(10**12), "prepare_us": Number(0.0, _DAY_US), "workspace": Count(1 << 50),
    "error": Number(0.0, 1e308), "bound": Number(0.0, 1e308), "status": OneOf(STATUSES), "reason": _LONG,
    "method": _LONG, "compiler": _LONG, "generator": _LONG, "host": _LONG, "date": Date(), "origin": Name(40, least=0),
}  # fmt: skip
SEARCH_RULES: Final[dict[str, Rule]] = {
    "problem": _PROBLEM, "target": _TARGET, "strategy": Name(80), "seed": Count((1 << 63) - 1), "trials": Count(10**12),
    "seconds": Number(0.0, 1e9, known=True), "ended": Name(80), "date": Date(),
}  # fmt: skip
_LONG_TEXTS = tuple(name for name, rule in RECORD_RULES.items() if rule is _LONG)


@dataclass(frozen=True)
class Record:
    """One config of one solver on one problem and target, as measured or as it failed.

    ``solver`` is a ``Candidate.name`` of the solver table, ``config`` the printed config, ``revision`` the solver's.
    ``time_us`` and ``spread_us`` are the median of ``run`` and its notch (``measure.timing``), ``prepare_us`` the time
    of ``prepare``, ``workspace`` bytes of scratch and packed filter. ``error`` is the largest error found by the check
    in units of ``bound``'s scale, so that ``error <= bound`` holds for every record that is ``ok``; both are None where
    they are no number.
    ``origin`` says what measured it: ``tune``, ``untuned`` (a search, as the choice that is made without one), ``find``
    (defaults only), ``verify`` (a shipped record, timed here) or ``import``. ``date`` is the second of the first check.
    Times are None where nothing was measured; ``reason`` says why a failed one failed.
    Raises ``RecordError`` for a field outside its rule (``RECORD_RULES``).
    """

    problem: str
    target: str
    solver: str
    config: str
    revision: int = 1
    time_us: float | None = None
    spread_us: float | None = None
    samples: int = 0
    prepare_us: float | None = None
    workspace: int = 0
    error: float | None = None
    bound: float | None = None
    status: str = OK
    reason: str = ""
    method: str = ""
    compiler: str = ""
    generator: str = ""
    host: str = ""
    date: str = ""
    origin: str = TUNE

    def __post_init__(self) -> None:
        values = self.__dict__
        for name in ("error", "bound"):  # a check that met NaN measures none
            if type(values[name]) is float and not math.isfinite(values[name]):
                object.__setattr__(self, name, None)
        for name in _LONG_TEXTS:  # what programs print, and names of files, may be no text
            if type(values[name]) is str and not values[name].isascii():
                object.__setattr__(self, name, values[name].encode("utf-8", "replace").decode())
        _check("record", values, RECORD_RULES)

    @property
    def ok(self) -> bool:
        """Checked, measured, and so free to be chosen."""
        return self.status == OK and self.time_us is not None

    def failed(self, reason: str) -> Record:
        """The same config with nothing measured and a reason."""
        return replace(self, status=FAILED, reason=reason[:REASON_MOST], time_us=None, spread_us=None, samples=0)


@dataclass(frozen=True)
class Search:
    """A search that was run: how, for how long, and how it ended (``converged``, ``budget`` or ``interrupted``).

    Raises ``RecordError`` for a field outside its rule (``SEARCH_RULES``).
    """

    problem: str
    target: str
    strategy: str
    seed: int
    trials: int
    seconds: float
    ended: str
    date: str

    def __post_init__(self) -> None:
        _check("search", self.__dict__, SEARCH_RULES)


def _check(what: str, values: dict[str, Any], rules: dict[str, Rule]) -> None:
    for name, rule in rules.items():
        expected = rule.breaks(values[name])
        if expected:
            raise RecordError(f"{what} with {name} {_shown(values[name])}, which is not {expected}")


def _shown(value: Any) -> str:
    """A value on one short line; Python prints no integer of thousands of digits."""
    if isinstance(value, int) and value.bit_length() > 200:
        return f"an integer of {value.bit_length()} bits"
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
