"""``tilesmith explain``: why a solver is chosen."""

from __future__ import annotations

from dataclasses import asdict, replace
from importlib.util import find_spec

import click

from tilesmith import env
from tilesmith.cli.options import (
    PROBLEMS,
    device_option,
    dtype_option,
    json_flag,
    mode_option,
    problems_argument,
    threads_option,
)
from tilesmith.cli.problem_list import Item, read_problems
from tilesmith.cli.terminal import note, print_json, print_table, print_wrapped
from tilesmith.db.records import Record
from tilesmith.dispatch.choice import DATABASE, NEAREST, NEAREST_PACKAGE, NEIGHBOUR, PACKAGE, SPEC, Choice
from tilesmith.dispatch.facts import with_predictions
from tilesmith.dispatch.locations import check_mode, open_cache, open_databases, target_of
from tilesmith.dispatch.packages import installed_packages
from tilesmith.dispatch.plain import why_only_plain
from tilesmith.dispatch.request import Request
from tilesmith.dispatch.resolve import explained
from tilesmith.problems.outline import outline_of
from tilesmith.solvers.table import external_solver
from tilesmith.targets.names import parse_target


@click.command(
    "explain", help="Say why a solver is chosen: every candidate with its reason, prediction and time.", **PROBLEMS
)
@problems_argument
@device_option
@threads_option
@mode_option
@dtype_option
@click.option("--all", "everything", is_flag=True, help="Every candidate, with its config or why it does not fit.")
@json_flag
def command(
    words: tuple[str, ...], device: str, threads: int | None, mode: str | None, dtype: str | None, everything: bool,
    as_json: bool,
) -> int:  # fmt: skip
    listing = read_problems(words, dtype or "")
    target, layers, cache = target_of(None, threads, device), open_databases(readonly=True), open_cache()
    # Explaining must not change what it explains: without an answer in a database the prediction decides.
    asked, only = check_mode(mode), env.ONLY_SOLVER.get()
    external = env.EXTERNAL.get() and find_spec("torch") is not None
    packages = installed_packages()
    for item in listing.items:
        deciding = asked if asked == "strict" else "fast"
        request = Request(item.signature, target, deciding, layers, cache, only, 0, external, packages)
        choice = explained(request)
        choice = replace(choice, trace=with_predictions(choice.trace, item.signature, target, external))
        if as_json:
            print_json(_record(item, target.name, asked, choice))
        else:
            _print(item, target.name, choice, everything)
            if item is not listing.items[-1]:
                click.echo()
    return listing.status


def _short(record: Record | None) -> str:
    """The sizes of a record's problem that another problem of its kind may have otherwise."""
    outline = None if record is None else outline_of(record.problem)
    if outline is None:
        return ""
    axes = [axis for axis in outline.head.rpartition(",")[0].rpartition(",")[2] if axis != "C"] or ["m"]
    return " ".join(f"{axis}={size}" for axis, size in zip(axes, outline.sizes, strict=True))


def _record(item: Item, target: str, mode: str, choice: Choice) -> dict[str, object]:
    return {
        **item.row, "target": target,
        "mode": mode, "solver": choice.solver, "config": choice.config, "basis": choice.basis, "layer": choice.layer,
        "role": choice.role, "record": None if choice.record is None else asdict(choice.record),
        "candidates": [
            {
                "solver": line.solver, "reason": line.reason, "config": line.config,
                "predicted_us": line.predicted_us, "time_us": line.time_us, "spread_us": line.spread_us,
                "layer": line.layer, "chosen": line.chosen,
            }
            for line in choice.trace
        ],
    }  # fmt: skip


def _print(item: Item, target: str, choice: Choice, everything: bool) -> None:
    record = choice.record
    held_by = f"{choice.role} layer {choice.layer}"
    why = {
        DATABASE: f"measured, in {held_by}",
        NEAREST: f"measured on {record.target if record else ''}, in {held_by}; not measured here",
        NEIGHBOUR: f"measured for the neighbour {_short(record)}, in {held_by}; not measured here",
        SPEC: f"by the {SPEC} {choice.layer}; nothing was measured",
        PACKAGE: f"{'measured' if choice.time_us else 'not measured'}, plan of package {choice.layer}",
        NEAREST_PACKAGE: f"not measured here, plan of package {choice.layer} for another machine",
    }.get(choice.basis, f"by {choice.basis}; nothing was measured")
    for title, text in (
        ("problem", item.short), ("command", item.command), ("key", item.signature.key()), ("target", target),
        ("solver", f"{choice.solver} ({why})"), ("config", choice.config), ("record", _evidence(choice)),
        ("note", why_only_plain(item.signature, parse_target(target), choice.solver)),
        ("note", _FOR_TORCH if external_solver(choice.solver) is not None else ""),
    ):  # fmt: skip
        if text:
            print_wrapped(text, f"{title:8}", " " * 8)
    fits = [line for line in choice.trace if not line.reason or line.chosen]
    headers = ["", "solver", "predicted_us", "time_us"]
    rows: list[list[object]] = [
        ["*" if line.chosen else "", line.solver, line.predicted_us, line.time_us, line.reason or line.config]
        for line in (choice.trace if everything else fits)
    ]
    if everything:
        print_table([*headers, "config, or why it does not fit"], rows, below=("config, or why it does not fit",))
        return
    print_table(headers, [row[:4] for row in rows])
    if folded := len(choice.trace) - len(fits):
        note(f"{folded} more do not fit: --all prints them, with the reasons and all configs")


_FOR_TORCH = "for PyTorch's tensors; all others, and processes without PyTorch, get the fastest generated kernel"


def _evidence(choice: Choice) -> str:
    record = choice.record
    if record is None:
        return ""
    evidence = (record.origin, record.date, record.host, record.compiler, record.generator)
    of = "of the neighbour: " if choice.basis == NEIGHBOUR else ""
    return f"{of}{record.time_us:.4g} us, {', '.join(part for part in evidence if part)}"
