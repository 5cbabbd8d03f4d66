"""Reads the inputs of a report, whatever they are, and joins what they say of each problem."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path

from tilesmith.db.remote import is_url
from tilesmith.errors import FileFormatError
from tilesmith.reading import read_named
from tilesmith.report.bench_files import read_results
from tilesmith.report.databases import read_database, read_export
from tilesmith.report.records import Finding, Findings, Place, Source

MOST_BYTES = 256 << 20  # of a result file
_SQLITE = b"SQLite format 3\0"
_LINE = b'{"format"'  # with which exported records begin


def read_source(path: str) -> Source:
    """Reads one input: a database, exported records, or a result file, as its first bytes say.

    Raises ``FileFormatError`` if it is none of them, or cannot be read.
    """
    if is_url(path) or os.path.isdir(f"{path}.records"):
        return read_database(path)
    if not os.path.exists(path):
        raise FileFormatError(f"{path}: no such file")
    with_head = b""
    if os.path.isfile(path):
        try:
            with open(path, "rb") as file:
                with_head = file.read(64)
        except OSError as error:
            raise FileFormatError(f"{path}: cannot be read: {error.strerror or error}") from None
        if not with_head:
            raise FileFormatError(f"{path}: is empty; a report needs a database, exported records or results of bench")
    if with_head.startswith(_SQLITE) or (with_head and not with_head.lstrip().startswith(b"{")):
        return read_database(path)
    if with_head.lstrip().startswith(_LINE):
        return read_export(path)
    return read_results(path, read_named(path, MOST_BYTES, pipes=False))


def gather(
    sources: Sequence[Source], lists: Mapping[str, AbstractSet[str]] | None = None, target: str = ""
) -> Findings:
    """Join the inputs: one finding for each problem and target, with the trials of one and the rivals of another.

    Of two inputs that know one problem, the later one's times count, unless only the earlier one's were measured beside
    another library. ``lists`` are names with canonical keys: problems get the names, and only those problems stay.
    ``target`` keeps those whose target begins so. Raises ``FileFormatError`` if nothing is left.
    """
    found: dict[tuple[str, str], Finding] = {}
    for finding in (finding for source in sources for finding in source.findings):
        held = found.get(finding.key)
        found[finding.key] = finding if held is None else _joined(held, finding)
    kept = [each for each in found.values() if not target or f"{each.target}:".startswith(f"{target}:")]
    if lists:
        kept = [
            replace(each, lists=names)
            for each in kept
            if (names := tuple(name for name, keys in lists.items() if each.problem in keys))
        ]
    if not kept:
        inputs = ", ".join(source.name for source in sources)
        wanted = " of these lists" * bool(lists) + f" on target {target}" * bool(target)
        raise FileFormatError(f"{inputs}: no problem{wanted} has a record; `tilesmith tune FILE` measures some")
    targets = {each.target for each in kept}
    places: dict[str, Place] = {}
    for place in (place for source in sources for place in source.places if place.target in targets):
        held_place = places.get(place.target)
        places[place.target] = place if held_place is None else _joined_place(held_place, place)
    warnings = tuple(warning for source in sources for warning in source.warnings)
    ordered = sorted(kept, key=lambda each: (each.target, each.problem))
    return Findings(tuple(ordered), tuple(places[name] for name in sorted(places)), tuple(sources), warnings)


def _joined(first: Finding, second: Finding) -> Finding:
    base, other = (first, second) if first.rivals and not second.rivals else (second, first)
    return replace(
        base, trials=base.trials or other.trials, search=base.search or other.search, gain=base.gain or other.gain,
        lists=tuple(dict.fromkeys((*first.lists, *second.lists))), command=base.command or other.command,
        roof_us=base.roof_us or other.roof_us, generator=base.generator or other.generator,
        compiler=base.compiler or other.compiler, host=base.host or other.host,
    )  # fmt: skip


def _joined_place(first: Place, second: Place) -> Place:
    return Place(first.target, {**first.facts, **second.facts}, second.machine or first.machine)


def is_same_file(one: str, other: str) -> bool:
    """Whether two names are one file: a comparison of a file with itself says nothing."""
    return Path(one).exists() and Path(other).exists() and os.path.samefile(one, other)
