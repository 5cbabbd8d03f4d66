"""``tilesmith solvers``: the families of kernels, what each computes, and the axes of its configs."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import click

from tilesmith.cli.completing import complete_solver
from tilesmith.cli.options import csv_flag, json_flag
from tilesmith.cli.terminal import CsvLines, note, print_json, print_table, print_wrapped
from tilesmith.errors import ArgumentError
from tilesmith.problems.features import ACTIVATED
from tilesmith.solvers.contract import Solver
from tilesmith.solvers.relayout import Relayout
from tilesmith.solvers.table_cpu import CPU_SOLVERS
from tilesmith.solvers.table_cuda import CUDA_SOLVERS
from tilesmith.spelling import did_you_mean

_FAMILIES: dict[str, tuple[Solver[Any], ...]] = {"cpu": CPU_SOLVERS, "cuda": CUDA_SOLVERS}
_OPERATIONS = ("fwd", "bwd", "wrw", "bgrad", "gemm")
_MOST = 5  # values of an axis that are shown


@click.command("solvers", help="List the families of kernels: what each computes, and the axes of its configs.")
@click.argument("names", nargs=-1, metavar="[SOLVER]...", shell_complete=complete_solver)
@click.option("--device", type=click.Choice(list(_FAMILIES)), help="Of this device alone (default: both).")
@json_flag
@csv_flag
def command(names: tuple[str, ...], device: str | None, as_json: bool, as_csv: bool) -> int:
    rows = [_row(family, each) for family in _FAMILIES if device in (None, family) for each in _FAMILIES[family]]
    known = [row["solver"] for row in rows]
    for name in names:
        if name not in known:
            where = f" for {device}" if device else ""
            raise ArgumentError(
                f"solver {name!r} does not exist{where}{did_you_mean(name, known)}; see tilesmith solvers"
            )
    chosen = [row for row in rows if row["solver"] in names] if names else rows
    if as_json or as_csv:
        write = print_json if as_json else CsvLines()
        for row in chosen:
            write(row)
    elif names:
        for row in chosen:
            _print(row)
            if row is not chosen[-1]:
                click.echo()
    else:
        own = [row for row in chosen if not row["inner"]]
        cells = [[row["solver"], row["device"], " ".join(row["operations"]), row["about"]] for row in own]
        print_table(("solver", "device", "computes", "about"), cells, below=("about",))
        note(
            f"{len(own)} solvers, best first; {len(chosen) - len(own)} more, whose names end in _nhwc, compute them "
            "on copies in other layouts. `tilesmith solvers NAME` prints axes."
        )
    return 0


def _row(family: str, solver: Solver[Any]) -> dict[str, Any]:
    inner = solver.inner if isinstance(solver, Relayout) else None
    about = inspect.getdoc(type(inner or solver)) or ""
    return {
        "solver": solver.name, "device": family, "revision": solver.revision,
        "operations": [name for name in _OPERATIONS if name in solver.features],
        "features": sorted(solver.features.difference(_OPERATIONS)),
        "about": about.partition("\n")[0].replace("``", ""), "inner": inner.name if inner else "",
        "axes": [{"name": axis.name, "values": list(axis.values), "meaning": axis.says} for axis in solver.axes],
    }  # fmt: skip


def _print(row: dict[str, Any]) -> None:
    click.echo(f"{row['solver']} ({row['device']}, revision {row['revision']})")
    print_wrapped(row["about"], "  ", "  ")
    if row["inner"]:
        print_wrapped(f"As {row['inner']}, on copies of the tensors that lie in other layouts.", "  ", "  ")
    print_wrapped(" ".join(row["operations"]), "  computes  ", " " * 12)
    activations = sorted(ACTIVATED.intersection(row["features"]))
    print_wrapped(", ".join(name for name in row["features"] if name not in activations), "  with      ", " " * 12)
    print_wrapped(", ".join(activations) or "none", "  activates ", " " * 12)
    if row["axes"]:
        cells = [[f"  {axis['name']}", _values(axis["values"]), axis["meaning"]] for axis in row["axes"]]
        print_table(("  axis", "values", "meaning"), cells, below=("meaning",))


def _values(values: Sequence[int]) -> str:
    if not values:
        return "of the problem"
    some = [*map(str, values[:_MOST])]
    return ", ".join(some if len(values) <= _MOST else [*some[:-1], "...", str(values[-1])])
