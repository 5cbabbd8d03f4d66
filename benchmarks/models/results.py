"""The result files of models, and the page docs/benchmarks-models.md that is made of them."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.append(str(HERE.parent / "gpu"))
import tables  # noqa: E402
from modes import MODES  # noqa: E402
from tables import END, slug, write_json  # noqa: E402

from tilesmith.measure.host import host_facts  # noqa: E402
from tilesmith.targets.detect import host_target  # noqa: E402
from tilesmith.toolchain.compilers import find_compiler  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "benchmarks-models.md"
BEGIN = "<!-- begin tables -->"
OURS = frozenset(mode.name for mode in MODES if mode.ours)


# --- files ------------------------------------------------------------------------------------------------------------


def path_of(family: str, threads: int) -> Path:
    """The file of this machine."""
    if family == "cpu":
        return RESULTS / f"models_cpu_{slug(host_target(threads).arch)}_t{threads}.json"
    from tilesmith.targets.detect_cuda import cuda_devices

    return RESULTS / f"models_{slug(cuda_devices()[0].name)}.json"


def load(path: Path, family: str, threads: int, command: str) -> dict:
    """What the file holds, with this machine, date and command."""
    return {"machine": machine(family, threads, command), "cells": cells(path)}


def cells(path: Path) -> list[dict]:
    """What the file holds of each model."""
    return json.loads(path.read_text())["cells"] if path.exists() else []


def machine(family: str, threads: int, command: str) -> dict:
    import torch

    if family == "cuda":
        return tables.facts(command)
    host = host_facts(find_compiler().identity).as_dict()
    return {**host, "target": host_target(threads).name, "threads": threads, "torch": torch.__version__,
            "command": command}  # fmt: skip


def rows_of(data: dict, key: dict) -> dict:
    """The rows of one model in one setting, by mode."""
    return next((cell["rows"] for cell in data["cells"] if {**cell, **key} == cell), {})


def add(data: dict, key: dict, rows: dict) -> None:
    """Newer rows replace older ones, except times by none."""
    held = rows_of(data, key)
    kept = {name: row for name, row in rows.items() if "us" in row or "us" not in held.get(name, {})}
    data["cells"] = [cell for cell in data["cells"] if {**cell, **key} != cell]
    data["cells"].append({**key, "rows": {**held, **kept}})


def write(path: Path, data: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, data)


# --- figures ----------------------------------------------------------------------------------------------------------


def best(rows: dict, ours: bool) -> str | None:
    """The fastest of our modes or of PyTorch's."""
    timed = {name: row["us"] for name, row in rows.items() if "us" in row and (name in OURS) == ours}
    return min(timed, key=timed.__getitem__, default=None)


def speed_up(rows: dict, name: str) -> float | None:
    """The time of PyTorch's fastest mode over the mode's: the median over rounds, where both were in the same ones."""
    rival = best(rows, ours=False)
    if rival is None or "us" not in rows.get(name, {}):
        return None
    ours, theirs = rows[name], rows[rival]
    pairs = list(zip(theirs["samples_us"], ours["samples_us"], strict=False))
    if ours["date"] != theirs["date"] or len(theirs["samples_us"]) != len(ours["samples_us"]):
        return theirs["us"] / ours["us"]
    return statistics.median(a / b for a, b in pairs)


def told(key: dict, rows: dict) -> str:
    """A line for each mode that has a time, and one for the result."""
    ratios = {name: speed_up(rows, name) for name in rows}
    lines = [
        f"    {name}: {row['us'] / 1e3:.2f} ms +- {row['spread_us'] / 1e3:.2f}"
        + (f", {ratio:.3f}x" if (ratio := ratios[name]) is not None else "")
        + (f", {row['disturbed']} samples disturbed" if row["disturbed"] else "")
        for name, row in rows.items() if "us" in row
    ]  # fmt: skip
    theirs, ours = best(rows, ours=False), best(rows, ours=True)
    if theirs and ours:
        lines.append(f"  {key['model']}: {ours} is {speed_up(rows, ours):.3f} times as fast as {theirs}")
    return "\n".join(lines)


# --- the page ---------------------------------------------------------------------------------------------------------


def settings_of(data: dict) -> list[tuple[str, str, str]]:
    """Kind, dtype and batch of each table: ``largest`` for GPUs, whose models differ in batch."""
    found = [(c["kind"], c["dtype"], "" if "gpu" in data["machine"] and data["machine"]["gpu"] else str(c["batch"]))
             for c in data["cells"]]  # fmt: skip
    return sorted(set(found))


def cells_in(data: dict, setting: tuple[str, str, str]) -> list[dict]:
    kind, dtype, batch = setting
    order = list(dict.fromkeys(cell["model"] for cell in data["cells"]))
    found = [c for c in data["cells"] if (c["kind"], c["dtype"]) == (kind, dtype) and batch in ("", str(c["batch"]))]
    return sorted(found, key=lambda cell: order.index(cell["model"]))


def mean_and_least(values: list[float | None]) -> tuple[str, str]:
    kept = [value for value in values if value]
    return (f"{statistics.geometric_mean(kept):.3f}", f"{min(kept):.3f}") if kept else ("", "")


def number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def summary(data: dict) -> list[str]:
    """The speed-up of each of our modes over PyTorch's fastest, by setting."""
    lines = [
        "The time of PyTorch's fastest mode over ours; above 1, ours is faster. `best` takes the fastest of our modes.",
        "", "| step | mode | models | geomean | least |", "|---|---|---:|---:|---:|",
    ]  # fmt: skip
    for setting in settings_of(data):
        cells = cells_in(data, setting)
        for name in ("best", *(mode.name for mode in MODES if mode.ours)):
            found = [speed_up(c["rows"], best(c["rows"], ours=True) or "" if name == "best" else name) for c in cells]
            if any(found):
                mean, least = mean_and_least(found)
                lines.append(f"| {heading(setting)} | {name} | {sum(map(bool, found))} | {mean} | {least} |")
    return [*lines, ""]


def heading(setting: tuple[str, str, str]) -> str:
    kind, dtype, batch = setting
    return f"{kind}, {dtype}" + (f", batch {batch}" if batch else "")


def table(data: dict, setting: tuple[str, str, str]) -> list[str]:
    """A line for each model: PyTorch's fastest mode and ours, with what they cost."""
    lines = [
        f"### {heading(setting)}", "",
        "| model | batch | PyTorch's fastest | ms | our fastest | ms | speed-up |", "|---|---:|---|---:|---|---:|---:|",
    ]  # fmt: skip
    costs = [
        "What they cost:", "",
        "| model | batch | first result, s: PyTorch | ours | peak MB: PyTorch | ours | error: PyTorch | ours |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]  # fmt: skip
    for cell in cells_in(data, setting):
        rows = cell["rows"]
        names = [best(rows, ours=False), best(rows, ours=True)]
        theirs, ours = (rows.get(name, {}) for name in names)
        cells = [cell["model"], str(cell["batch"])]
        for name, row in zip(names, (theirs, ours), strict=True):
            cells += [name or "", number(row.get("us", 0) / 1e3 if row else None, ".2f")]
        cells.append(number(speed_up(rows, names[1] or ""), ".3f"))
        lines.append(f"| {' | '.join(cells)} |")
        cells = cells[:2]
        for field, form in (("first_s", ".1f"), ("peak_mb", ".0f"), ("error", ".1e")):
            # A build that went on with what an earlier one left says nothing about the first result.
            # Modes that make graphs themselves hold their memory before the step: what it takes then is not known.
            known = [
                {} if (field == "first_s" and row.get("goes_on")) or row.get(field, 0) < 0 else row
                for row in (theirs, ours)
            ]
            cells += [number(row.get(field), form) for row in known]
        costs.append(f"| {' | '.join(cells)} |")
    return [*lines, "", *costs, "", *every_mode(data, setting)]


def every_mode(data: dict, setting: tuple[str, str, str]) -> list[str]:
    """The time of each mode; why it has none where it failed."""
    cells = cells_in(data, setting)
    names = [mode.name for mode in MODES if any(mode.name in cell["rows"] for cell in cells)]
    lines = [
        "Milliseconds of every mode:", "", f"| model | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}",
    ]  # fmt: skip
    for cell in cells:
        lines.append(f"| {cell['model']} | {' | '.join(shown(cell['rows'].get(name)) for name in names)} |")
    return [*lines, ""]


def shown(row: dict | None) -> str:
    if row is None:
        return ""
    if "us" in row:
        return f"{row['us'] / 1e3:.2f}"
    return next((state for state in ("missing", "failed", "died") if state in row), "")


def page(data: dict) -> str:
    facts = data["machine"]
    name = facts.get("gpu") or f"{facts['cpu']}, {facts['threads']} threads"
    place = [f"{label} {facts[field]}" for label, field in
             (("target", "target"), ("driver", "driver_version"), ("torch", "torch")) if facts.get(field)]  # fmt: skip
    lines = [
        f"## {name}", "", f"{facts['date']}, {', '.join(place)}.", f"`python benchmarks/models/{facts['command']}`", "",
        *summary(data),
    ]  # fmt: skip
    for setting in settings_of(data):
        lines += table(data, setting)
    return "\n".join(lines)


def rendered() -> str:
    """The page as the result files say it."""
    before, rest = PAGE.read_text().split(BEGIN)
    found = "\n".join(page(json.loads(path.read_text())) for path in sorted(RESULTS.glob("models_*.json")))
    return f"{before}{BEGIN}\n\n{found}\n{END}{rest.split(END)[1]}"


def write_page() -> None:
    if PAGE.exists() and BEGIN in PAGE.read_text():
        PAGE.write_text(rendered())
