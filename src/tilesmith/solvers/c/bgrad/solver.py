"""Bias gradient: the sum of ``dy`` over everything but channels, for channels-last tensors and for contiguous rows."""

from __future__ import annotations

from math import ceil

from tilesmith.plan.records import Draft, Integer
from tilesmith.problems.features import USUAL, WINDOW
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.c.bgrad.cost import predicted_seconds
from tilesmith.solvers.c.bgrad.text import fold_body, run_body
from tilesmith.solvers.c.bgrad.tile import BgradTile, bgrad_tile, in_rows
from tilesmith.solvers.c.common.family import FLOATS, WORKSPACE, Family, Kernel, assembled, convolution, slot
from tilesmith.solvers.solver import Axis, Config, Geometry, Rejected, SearchSpace, remembered, values_of
from tilesmith.targets.target import CpuTarget

AXES = (
    Axis("vectors", (1, 2, 4, 8), "Vectors of channels that are summed at once."),
    Axis("split_n", (1, 2, 4, 8, 16, 32, 64), "Shares of the rows, whose sums a second kernel adds."),
)
_SMALLEST = Config((("vectors", 1), ("split_n", 1)))


class BgradSolver(Family[BgradTile]):
    """``bgrad`` of a tensor whose channels, or whose rows, are contiguous."""

    name = "c_bgrad"
    revision = 1
    features = USUAL | WINDOW | {"bgrad", "groups"}
    axes = AXES
    directions = ("bgrad",)

    def refusal(self, problem: ConvGeometry, target: CpuTarget) -> Rejected | None:
        if problem.acc_dtype != "fp32" or problem.y.dtype not in FLOATS:
            return Rejected(reasons.DTYPE, f"{problem.y.dtype} {problem.acc_dtype}")
        if not (problem.y.channels_last or in_rows(problem.y)):
            return Rejected(reasons.LAYOUT, "neither channels nor rows are contiguous")
        return None

    def search_space(self, problem: Geometry, target: CpuTarget) -> SearchSpace:
        rows = self.tile(problem, _SMALLEST, target).rows
        return SearchSpace(
            values_of(AXES),
            lambda config: config["split_n"] <= rows and config["vectors"] + 2 <= target.vector_registers,
        )

    @remembered
    def default_config(self, problem: Geometry, target: CpuTarget) -> Config:
        t = self.tile(problem, _SMALLEST, target)
        splits = 1
        while splits < (8 * target.cores if target.cores > 1 else 1) and splits * 2 <= min(64, t.rows):
            splits *= 2
        vectors = ceil(t.problem.k / target.lanes(4))
        nv = 8 if vectors >= 8 or not t.problem.y.channels_last else 4 if vectors >= 4 else 2
        return _SMALLEST.replace(vectors=nv, split_n=splits)

    def tile(self, problem: Geometry, config: Config, target: CpuTarget) -> BgradTile:
        return bgrad_tile(convolution(problem), config, target)

    def seconds(self, tile: BgradTile) -> float:
        return predicted_seconds(tile)

    def kernels(self, tile: BgradTile, tag: str) -> Draft:
        t, dtype, splits = tile, tile.problem.y.dtype, Integer(tile.splits)
        run = Kernel("bgrad", dtype, run_body(t), t.splits, (slot(0), WORKSPACE, Integer(t.rows), splits))
        fold = Kernel("bgradsum", dtype, fold_body(t), 1, (WORKSPACE, slot(1), splits))
        return assembled(t.target, tag, [run, fold], workspace=t.splits * t.pitch * 4)
