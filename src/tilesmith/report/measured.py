"""Problems that this process has just measured, as the input of a report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from tilesmith.compare.bench_records import FAILED, Bench
from tilesmith.dispatch.launchable import Launchable
from tilesmith.measure.host import host_facts, moment
from tilesmith.measure.machine import Machine
from tilesmith.report.places import place_of_facts
from tilesmith.report.records import Finding, Rival, Source
from tilesmith.targets.target import Target


def measured_source(
    name: str, target: Target, machine: Machine, rows: Iterable[tuple[Launchable, Bench]], versions: Mapping[str, str]
) -> Source:
    """The input ``name``: launchables with their benchmarks on ``target``; ``versions`` of the other libraries."""
    peaks = {key: value for key, value in asdict(machine).items() if isinstance(value, float)}
    facts: dict[str, Any] = {"host": machine.host, "measured": moment(), "load": host_facts().load, **versions, **peaks}
    findings = tuple(_finding(target.name, machine.host, *row) for row in rows)
    return Source(name, "measured for this report", findings, (place_of_facts(target.name, facts),))


def _finding(target: str, host: str, launch: Launchable, found: Bench) -> Finding:
    works = found.status != FAILED and found.time_us is not None
    rivals = tuple(Rival(name, them.time_us, them.spread_us, them.mode) for name, them in found.against.items())
    return Finding(
        launch.signature.canonical.key(), target, launch.solver, str(launch.config),
        found.time_us if works else None, found.spread_us if works else None, found.status, found.reason,
        rivals=rivals, error=found.error, bound=found.bound, host=host, method=found.method, date=moment(),
        roof_us=found.roofline * found.time_us if works and found.roofline and found.time_us else None,
    )  # fmt: skip
