"""The machines of a report: their facts in words, and the peaks that bound every kernel."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from tilesmith.db.records import Record
from tilesmith.dispatch.locations import open_cache
from tilesmith.errors import TargetError
from tilesmith.measure.host import host_facts
from tilesmith.measure.machine import Machine, known_machine, sheet_machine
from tilesmith.report.records import Place
from tilesmith.targets.detect import host_target
from tilesmith.targets.names import parse_target
from tilesmith.targets.target import CpuTarget

_PEAKS = ("fp32_flops", "fp64_flops", "cache_bandwidth", "memory_bandwidth")
_FURTHER = ("bf16_flops", "tf32_flops", "fp8_flops", "int8_flops")
_SHOWN = 4  # different values of one fact


def place_of_records(target: str, records: Iterable[Record]) -> Place:
    """The machine of a database's records, from the evidence that each of them has."""
    facts: dict[str, dict[str, None]] = {}
    dates = []
    for record in records:
        for name in ("host", "compiler", "generator", "method"):
            if value := getattr(record, name):
                facts.setdefault(name, {})[value] = None
        if record.date:
            dates.append(record.date)
    told = {name: _joined(list(values)) for name, values in facts.items()}
    if dates:
        told["measured"] = min(dates) if min(dates) == max(dates) else f"{min(dates)} to {max(dates)}"
    hosts = list(facts.get("host", ()))
    return Place(target, told, peaks_of(target, hosts[0] if len(hosts) == 1 else ""))


def place_of_facts(target: str, facts: Mapping[str, Any]) -> Place:
    """The machine that a result file describes: numbers of peaks, and everything else as text."""
    numbers = {name: facts[name] for name in (*_PEAKS, *_FURTHER) if _is_rate(facts.get(name))}
    told = {
        str(name): str(value) for name, value in facts.items()
        if name not in (*_PEAKS, *_FURTHER) and value not in ("", None) and isinstance(value, str | int | float)
    }  # fmt: skip
    if not all(name in numbers for name in _PEAKS):
        return Place(target, told, peaks_of(target, ""))
    machine = Machine(
        target, str(facts.get("cpu", "")), str(facts.get("date", "")), numbers["fp32_flops"], numbers["fp64_flops"],
        numbers.get("bf16_flops"), numbers["cache_bandwidth"], numbers["memory_bandwidth"],
        numbers.get("tf32_flops"), numbers.get("fp8_flops"), numbers.get("int8_flops"),
    )  # fmt: skip
    return Place(target, told, machine)


def peaks_of(target: str, host: str) -> Machine | None:
    """A GPU's peaks are those of its data sheet. A CPU's are known if it is this one, ``host``, and were measured."""
    try:
        known = parse_target(target)
        if not isinstance(known, CpuTarget):
            return sheet_machine(known, host, "")
        here = host_target(known.cores)
    except TargetError:
        return None
    name = host_facts().name
    return known_machine(here, name, open_cache()) if (here.name, host) == (target, name) else None


def _is_rate(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def _joined(values: list[str]) -> str:
    more = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
    return "; ".join(values[:_SHOWN]) + more
