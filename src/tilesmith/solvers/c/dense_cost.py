"""How long a config takes, from first principles: a model for ranking, not for promises."""

from __future__ import annotations

from tilesmith.solvers.c.dense_tiling import Tiling

CYCLES_PER_SECOND = 3.8e9


def predicted_seconds(t: Tiling) -> float:
    return t.form.products / t.lanes / t.target.fma_per_cycle / CYCLES_PER_SECOND / t.target.cores
