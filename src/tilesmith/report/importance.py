"""Which axes of a search space mattered: the share of the variance of log time that one axis alone explains.

The share is epsilon squared of a one-way analysis of variance (T. L. Kelley, An unbiased correlation ratio measure,
PNAS 21, 1935): what chance alone would explain with so many values and so few trials is taken off. The shares of the
axes need not sum to one: axes act together, and a search measures good configs more often than bad ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tilesmith.db.records import Record
from tilesmith.solvers.old_names import read_config

LEAST = 8  # trials of a solver below which nothing is said


def by_solver(trials: Sequence[Record]) -> dict[str, list[Record]]:
    """The trials of each solver, in the order of their names."""
    found: dict[str, list[Record]] = {}
    for record in sorted(trials, key=lambda each: (each.solver, each.config)):
        found.setdefault(record.solver, []).append(record)
    return found


def axes_of(record: Record) -> Mapping[str, int]:
    """The values of a config by axis; empty where the text is of another program."""
    return _axes(record.solver, record.config)


@lru_cache(maxsize=1 << 17)
def _axes(solver: str, config: str) -> Mapping[str, int]:
    try:
        return dict(read_config(solver, config).values)
    except ValueError:
        return {}


def importance(trials: Sequence[Record]) -> dict[str, float]:
    """Axis -> share of the variance of log time, from 0 to 1, the largest first; of trials of one solver.

    Failed trials are left out, and so are axes with one value. Empty for fewer than ``LEAST`` trials.
    """
    rows = [(axes_of(record), math.log(record.time_us)) for record in trials if record.ok and record.time_us]
    rows = [row for row in rows if row[0]]
    if len(rows) < LEAST:
        return {}
    values = np.array([seconds for _, seconds in rows])
    names = dict.fromkeys(name for axes, _ in rows for name in axes)
    levels = {name: [axes.get(name, -1) for axes, _ in rows] for name in names}
    shares = {name: _share(np.array(each), values) for name, each in levels.items() if len(set(each)) > 1}
    return dict(sorted(shares.items(), key=lambda item: (-item[1], item[0])))


def _share(levels: NDArray[np.int64], values: NDArray[np.float64]) -> float:
    total = float(((values - values.mean()) ** 2).sum())
    _, index, counts = np.unique(levels, return_inverse=True, return_counts=True)
    spare = len(values) - len(counts)
    if total <= 0 or spare <= 0:
        return 0.0
    means = np.bincount(index, values) / counts
    within = float(((values - means[index]) ** 2).sum())
    by_chance = (len(counts) - 1) * within / spare
    return min(1.0, max(0.0, (total - within - by_chance) / total))


def mean_importance(found: Mapping[str, Sequence[Mapping[str, float]]]) -> list[tuple[str, str, float, int]]:
    """``(family, axis, mean share, problems)`` of each axis that varied, over the problems where its family was
    searched."""
    rows = []
    for family, problems in sorted(found.items()):
        for name in sorted({name for shares in problems for name in shares}):
            shares = [each[name] for each in problems if name in each]
            rows.append((family, name, sum(shares) / len(shares), len(shares)))
    return rows
