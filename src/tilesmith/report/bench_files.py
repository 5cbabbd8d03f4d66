"""Result files as findings: what ``tilesmith bench --json`` writes, and what the GPU benchmark of this project does."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from pathlib import PurePath
from statistics import median
from typing import Annotated, Any, Literal

import msgspec

from tilesmith.errors import CommandError, FileFormatError, ProblemError
from tilesmith.problems.driver import parse_problem
from tilesmith.problems.keys import parse_key
from tilesmith.report.places import place_of_facts
from tilesmith.report.records import FAILED, Finding, Rival, Source

Time = Annotated[float, msgspec.Meta(gt=0, le=86_400e6)] | None
Spread = Annotated[float, msgspec.Meta(ge=0, le=86_400e6)] | None


class _Against(msgspec.Struct, frozen=True):
    time_us: Time
    spread_us: Spread = None
    mode: str = ""


class _Row(msgspec.Struct, frozen=True):
    """A row of ``bench``. Fields that a report does not show are not read."""

    command: str = ""
    key: str = ""
    direction: str = ""
    solver: str = ""
    config: str = ""
    time_us: Time = None
    spread_us: Spread = None
    status: Literal["ok", "disturbed", "failed"] = "ok"
    reason: str = ""
    roofline: Annotated[float, msgspec.Meta(ge=0)] | None = None
    error: float | None = None
    bound: float | None = None
    against: dict[str, _Against] = {}


class _Bench(msgspec.Struct, frozen=True):
    target: str
    host: dict[str, Any]
    results: list[_Row]


class _Tuned(msgspec.Struct, frozen=True):
    speedup: Annotated[float, msgspec.Meta(gt=0)] | None = None


class _Pass(msgspec.Struct, frozen=True):
    time_us: Time
    against: dict[str, _Against] = {}


class _ListRow(msgspec.Struct, frozen=True):
    """``again`` are further passes over the same problem, minutes later."""

    command: str
    direction: str
    bench: _Row | None = None
    tune: _Tuned | None = None
    again: list[_Pass] = []


class _Lists(msgspec.Struct, frozen=True):
    target: str
    machine: dict[str, Any]
    lists: dict[str, list[_ListRow]]
    method: str = ""


def read_results(path: str, data: bytes) -> Source:
    """The findings of a result file. Raises ``FileFormatError`` for JSON of another shape."""
    try:
        shape = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        if "lists" in shape:
            return _of_lists(path, msgspec.json.decode(data, type=_Lists))
        return _of_bench(path, msgspec.json.decode(data, type=_Bench))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise FileFormatError(
            f"{path}: holds no results that a report reads ({error}); it reads databases, what `db export` writes, and "
            "what `bench --json` writes"
        ) from None


def _of_bench(path: str, found: _Bench) -> Source:
    name, warnings = PurePath(path).stem, list[str]()
    findings = tuple(
        finding for row in found.results if (finding := _finding(path, row, found.target, name, found.host, warnings))
    )
    return Source(path, "results of bench", findings, (place_of_facts(found.target, found.host),), tuple(warnings))


def _of_lists(path: str, found: _Lists) -> Source:
    warnings = list[str]()
    facts = {**found.machine, "method": found.method}
    findings = tuple(
        finding for name, row, tune in _rows(found)
        if (finding := _finding(path, row, found.target, name, facts, warnings, tune.speedup if tune else None))
    )  # fmt: skip
    return Source(path, "results of lists", findings, (place_of_facts(found.target, facts),), tuple(warnings))


def _rows(found: _Lists) -> Iterator[tuple[str, _Row, _Tuned | None]]:
    for name, rows in found.lists.items():
        for row in rows:
            if row.bench is not None:
                named = msgspec.structs.replace(row.bench, command=row.command, direction=row.direction)
                yield name, _of_all_passes(named, row.again), row.tune


def _of_all_passes(first: _Row, again: list[_Pass]) -> _Row:
    """The median of our times over all passes, and the fastest of each library's."""
    times = [us for us in (first.time_us, *(each.time_us for each in again)) if us]
    if not again or not first.time_us:
        return first
    theirs = [first.against, *(each.against for each in again)]
    against = {
        name: min((each[name] for each in theirs if name in each), key=lambda found: found.time_us or inf)
        for name in first.against
    }
    ours = median(times)
    roofline = first.roofline * first.time_us / ours if first.roofline else None
    return msgspec.structs.replace(first, time_us=ours, against=against, roofline=roofline)


def _finding(
    path: str, row: _Row, target: str, name: str, facts: dict[str, Any], warnings: list[str], gain: float | None = None
) -> Finding | None:  # fmt: skip
    try:
        problem = _key_of(row)
    except (CommandError, ProblemError) as error:
        warnings.append(f"{path}: {row.key or row.command}: {error}")
        return None
    rivals = tuple(
        Rival(library, each.time_us, each.spread_us, each.mode) for library, each in row.against.items() if each.time_us
    )
    works = row.status != FAILED and row.time_us is not None
    return Finding(
        problem, target, row.solver, row.config, row.time_us if works else None, row.spread_us if works else None,
        row.status if works else FAILED, row.reason, gain if works else None, rivals,
        lists=(name,), command=row.command, error=row.error, bound=row.bound,
        roof_us=row.roofline * row.time_us if works and row.roofline and row.time_us else None,
        host=str(facts.get("gpu") or facts.get("cpu") or ""),
        compiler=str(facts.get("compiler", facts.get("nvrtc", ""))),
        method=str(facts.get("method", "")), date=str(facts.get("date", "")),
    )  # fmt: skip


def _key_of(row: _Row) -> str:
    if row.key:
        return parse_key(row.key).canonical.key()
    for direction, signature in parse_problem(row.command).signatures:
        if direction == row.direction:
            return signature.canonical.key()
    raise CommandError(f"the command has no direction {row.direction!r}")
