"""Writes docs/reference/axes.md, the page of every solver's axes, from the solvers' own tables.

python tests/docs/axes.py
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from tilesmith.solvers.old_names import OLD_NAMES
from tilesmith.solvers.relayout import Relayout
from tilesmith.solvers.solver import Axis
from tilesmith.solvers.table_cpu import CPU_SOLVERS
from tilesmith.solvers.table_cuda import CUDA_SOLVERS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "axes.md"
HEAD = """# Axes of configs

A config is text such as `tile_h=1 tile_w=14 vectors=2`: one value for each axis of its solver, in the order below.
`tilesmith generate --config` and the tuning spec take them. A problem may have fewer values than stand here; "of the
problem" are values that follow from its sizes. Solvers whose names end in `_nhwc` have the axes of those without.

Databases, specs and result files of former versions hold the old names. They are read for ever, and mean the same;
what is written from now on has the new names.

This page is written by `python tests/docs/axes.py` from the tables in `src/tilesmith/solvers/`.
"""


def page() -> str:
    fast = [solver for solver in (*CPU_SOLVERS, *CUDA_SOLVERS) if not isinstance(solver, Relayout) and solver.axes]
    parts = [HEAD]
    for axes in dict.fromkeys(solver.axes for solver in fast):
        names = [solver.name for solver in fast if solver.axes == axes]
        parts.append(f"## {', '.join(f'`{name}`' for name in names)}\n")
        old = {new: name for name, new in OLD_NAMES.get(names[0], {}).items()}
        rows = [["axis", "values", "meaning", "old name"], ["---"] * 4]
        rows += [[f"`{axis.name}`", _values(axis), axis.says, _code(old.get(axis.name, ""))] for axis in axes]
        parts.append("\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n")
    return "\n".join(parts)


def _values(axis: Axis) -> str:
    values = axis.values
    if not values:
        return "of the problem"
    steps = {b - a for a, b in pairwise(values)}
    if len(values) > 8 and len(steps) == 1:
        return f"{values[0]}, {values[1]}, …, {values[-1]}"
    return ", ".join(map(str, values))


def _code(name: str) -> str:
    return f"`{name}`" if name else ""


if __name__ == "__main__":
    PAGE.write_text(page())
