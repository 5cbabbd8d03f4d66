"""The data of a page: everything that is drawn and listed, as plain values, the trials apart and in columns."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from tilesmith.db.records import UNTUNED, Record, Search
from tilesmith.measure.machine import Machine, peak_of
from tilesmith.problems.driver.write import command_or_key
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.work import flops, least_work
from tilesmith.report.importance import axes_of, by_solver, importance, mean_importance
from tilesmith.report.names import direction_of, dtype_of, family_of, operation_of, signature_of
from tilesmith.report.records import OK, Finding, Findings, Place
from tilesmith.report.words import figures, name_of, roof_share, sentences, standing

PAUSE_S = 60.0  # between two trials: longer means that another search began
_REASON = 400  # characters of a failure that a page shows
_SUFFIX = "_flops"

Payload = dict[str, Any]


def page_data(found: Findings, trials: Payload) -> Payload:
    """All but the ``trials`` (of ``trial_data``)."""
    machines = {place.target: place.machine for place in found.places}
    return {
        "kind": "report",
        "words": sentences(found),
        "figures": [vars(figure) for figure in figures(found)],
        "problems": [_problem(each, machines.get(each.target)) for each in found.results],
        **page_places([found]),
        "importance": [[*row[:2], _short(row[2]), row[3]] for row in mean_importance(_shares(trials))],
        "failures": _failures(found.results),
    }  # fmt: skip


def page_places(found: Sequence[Findings]) -> Payload:
    """The machines, the inputs and the warnings."""
    places = {(place.target, tuple(place.facts.items())): place for each in found for place in each.places}
    return {
        "places": [_place(place) for place in places.values()],
        "sources": [
            {"name": source.name, "kind": source.kind, "problems": len(source.findings),
             "trials": sum(len(each.trials) for each in source.findings)}
            for each in found for source in each.sources
        ],
        "warnings": [warning for each in found for warning in each.warnings],
    }  # fmt: skip


def trial_data(results: Sequence[Finding]) -> Payload:
    """The trials of each problem, by solver and in columns; ``reasons`` has the texts that ``bad`` counts."""
    reasons: dict[str, int] = {}
    problems = []
    for finding in results:
        seconds = _seconds(finding.trials, finding.search)
        groups = by_solver(finding.trials)
        problems.append([_group(solver, records, seconds, reasons) for solver, records in groups.items()])
    return {"problems": problems, "reasons": list(reasons)}


def _problem(finding: Finding, machine: Machine | None) -> Payload:
    signature = signature_of(finding.problem)
    rival, search = finding.rival, finding.search
    return {
        "name": name_of(finding), "key": finding.problem, "command": _command(finding, signature),
        "target": finding.target, "lists": list(finding.lists), **_groups(signature),
        "solver": finding.solver, "family": family_of(finding.solver), "config": finding.config,
        "us": _short(finding.time_us), "spread": _short(finding.spread_us), "status": finding.status,
        "reason": finding.reason[:_REASON], "ratio": _short(finding.ratio), "standing": standing(finding),
        "gain": _short(finding.gain), "roof": _short(_roof(finding, signature, machine)),
        "rival": None if rival is None else {"name": rival.name, "us": _short(rival.time_us), "mode": rival.mode},
        "rivals": [[each.name, _short(each.time_us), each.mode] for each in finding.rivals],
        **_work(signature, machine), "error": _short(finding.error), "bound": _short(finding.bound),
        "tried": len(finding.trials), "failed": sum(not record.ok for record in finding.trials),
        "search": None if search is None else {
            "strategy": search.strategy, "seconds": _short(search.seconds), "trials": search.trials,
            "ended": search.ended, "date": search.date,
        },
        "date": finding.date, "compiler": finding.compiler, "generator": finding.generator, "method": finding.method,
    }  # fmt: skip


def _command(finding: Finding, signature: Signature | None) -> str:
    return finding.command or (finding.problem if signature is None else command_or_key(signature))


def _groups(signature: Signature | None) -> Payload:
    if signature is None:
        return {"operation": "unknown", "direction": "unknown", "dtype": "unknown"}
    return {
        "operation": operation_of(signature), "direction": direction_of(signature), "dtype": dtype_of(signature)
    }  # fmt: skip


def _work(signature: Signature | None, machine: Machine | None) -> Payload:
    """Operations and bytes that no kernel can leave out, those of the definition, and the peak of the operands."""
    if signature is None:
        return {"ops": None, "bytes": None, "flops": None, "peak": None}
    operations, nbytes = least_work(signature)
    peak = peak_of(signature, machine) if machine is not None else None
    return {"ops": operations, "bytes": nbytes, "flops": flops(signature), "peak": peak}


def _roof(finding: Finding, signature: Signature | None, machine: Machine | None) -> float | None:
    """The share of the roofline: as the input says it, else against the memory of the machine."""
    known = roof_share(finding)
    if known is not None or signature is None or machine is None or not finding.time_us:
        return known
    operations, nbytes = least_work(signature)
    bandwidth = machine.memory_bandwidth if machine.tf32_flops else machine.cache_bandwidth
    return max(operations / peak_of(signature, machine), nbytes / bandwidth) / finding.time_us * 1e6


def _place(place: Place) -> Payload:
    machine = place.machine
    peaks = {} if machine is None else {
        name.removesuffix(_SUFFIX): value for name, value in vars(machine).items() if name.endswith(_SUFFIX) and value
    }  # fmt: skip
    speeds = {} if machine is None else {"memory": machine.memory_bandwidth}
    if machine is not None and machine.cache_bandwidth > 1.05 * machine.memory_bandwidth:
        speeds["cache"] = machine.cache_bandwidth
    return {"target": place.target, "facts": list(place.facts.items()), "peaks": peaks, "bandwidth": speeds}


def _shares(trials: Payload) -> Mapping[str, list[dict[str, float]]]:
    """The shares of each problem where a family was searched."""
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    for group in (group for groups in trials["problems"] for group in groups):
        if group["shares"]:
            found[family_of(group["solver"])].append(dict(group["shares"]))
    return found


def _failures(results: Sequence[Finding]) -> list[Payload]:
    """Failures of configs by their reason (numbers apart), the most frequent first, and problems without a kernel."""
    found: dict[str, Payload] = {}
    for place, finding in enumerate(results):
        broken = [(record.solver, record.reason) for record in finding.trials if not record.ok]
        if finding.status != OK and not broken:
            broken = [(finding.solver, finding.reason)]
        for solver, reason in broken:
            kind = re.sub(r"\d+", "#", reason)[:200]
            entry = found.setdefault(kind, {"reason": reason[:_REASON], "count": 0, "problems": {}, "solvers": {}})
            entry["count"] += 1
            entry["problems"][place] = None
            entry["solvers"][family_of(solver)] = None
    ordered = sorted(found.values(), key=lambda entry: -entry["count"])
    return [{**entry, "problems": list(entry["problems"]), "solvers": list(entry["solvers"])} for entry in ordered]


def _group(
    solver: str, records: Sequence[Record], seconds: Mapping[int, float] | None, reasons: dict[str, int]
) -> Payload:
    """The trials of one solver: values by axis, times, moments, and the failures."""
    configs = [axes_of(record) for record in records]
    names = list(dict.fromkeys(name for config in configs for name in config))
    found: Payload = {
        "solver": solver, "us": [_short(record.time_us) if record.ok else None for record in records],
        "spread": [_short(record.spread_us) for record in records],
        "axes": {name: [config.get(name) for config in configs] for name in names},
        "bad": [-1 if record.ok else reasons.setdefault(record.reason[:_REASON], len(reasons)) for record in records],
        "untuned": next((place for place, record in enumerate(records) if record.origin == UNTUNED), -1),
        "shares": [[name, _short(share)] for name, share in importance(records).items()],
        "at": None if seconds is None else [seconds[id(record)] for record in records],
    }  # fmt: skip
    if not names:
        found["text"] = [record.config for record in records]
    return found


def _seconds(trials: Sequence[Record], search: Search | None) -> Mapping[int, float] | None:
    """When each config was checked, in seconds of searching, by the record's ``id``; None where no record says it.

    Databases of former versions give all trials of a search the same second.
    """
    dated = sorted((record for record in trials if len(record.date) == 20), key=_date_of)
    moments = [_moment(record.date) for record in dated]
    if len(dated) < len(trials) or len(set(moments)) < 2:
        return None
    began = _moment(search.date) if search is not None and len(search.date) == 20 else moments[0]
    at = moments[0] - began if 0 <= moments[0] - began <= PAUSE_S else 0.0
    found = {id(dated[0]): at}
    for before, now, record in zip(moments, moments[1:], dated[1:], strict=False):
        at += now - before if now - before <= PAUSE_S else 0.0
        found[id(record)] = at
    return found


def _date_of(record: Record) -> str:
    return record.date


@lru_cache(maxsize=1 << 16)
def _moment(date: str) -> float:
    return datetime.strptime(date, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()


def _short(value: float | None) -> float | None:
    """Five digits: what a page shows."""
    return None if value is None else float(f"{value:.5g}")
