"""``tilesmith explain``: why a solver is chosen."""

from __future__ import annotations

from dataclasses import asdict, replace
from importlib.util import find_spec

import click

from tilesmith import env
from tilesmith.cli.options import PROBLEMS, device_option, dtype_option, json_flag, mode_option, threads_option
from tilesmith.cli.problem_list import Item, read_problems
from tilesmith.cli.terminal import print_json, table
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
@click.argument("words", nargs=-1, required=True, metavar="FILE|COMMAND", type=click.UNPROCESSED)
@device_option
@threads_option
@mode_option
@dtype_option
@json_flag
def command(
    words: tuple[str, ...], device: str, threads: int | None, mode: str | None, dtype: str | None, as_json: bool
) -> int:
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
            click.echo(_text(item, target.name, choice))
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


def _text(item: Item, target: str, choice: Choice) -> str:
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
    head = f"{item.command}\n{item.signature.key()}\n{target}: {choice.solver} {choice.config} ({why})"
    plain = why_only_plain(item.signature, parse_target(target), choice.solver)
    head += f"\n{plain}" if plain else ""
    if record is not None:
        evidence = (record.origin, record.date, record.host, record.compiler, record.generator)
        of = "record of the neighbour" if choice.basis == NEIGHBOUR else "record"
        head += f"\n{of}: {record.time_us:.4g} us, {', '.join(part for part in evidence if part)}"
    rows = [
        ["*" if line.chosen else "", line.solver, line.predicted_us, line.time_us, line.config, line.reason]
        for line in choice.trace
    ]
    if external_solver(choice.solver) is not None:
        head += "\nfor PyTorch's tensors; all others, and processes without PyTorch, get the fastest generated kernel"
    return f"{head}\n{table(('', 'solver', 'predicted_us', 'time_us', 'config', 'reason'), rows)}\n"
