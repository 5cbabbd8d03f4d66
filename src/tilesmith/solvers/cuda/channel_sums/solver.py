"""The bias gradient: sums of ``dy`` over everything but channels, at the speed of memory, for any strides."""

from __future__ import annotations

from itertools import product

from tilesmith.plan.records import Draft
from tilesmith.problems.features import USUAL, WINDOW
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.channel_sums.cost import sums_seconds
from tilesmith.solvers.cuda.channel_sums.draft import sums_draft
from tilesmith.solvers.cuda.channel_sums.form import sums_form
from tilesmith.solvers.cuda.channel_sums.tile import SumsTile
from tilesmith.solvers.solver import (
    Accepted,
    Axis,
    Config,
    Geometry,
    Rejected,
    SearchSpace,
    remembered,
)
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget

_DTYPES = ("bf16", "fp16", "fp32")
_MAX_ITEMS = 2**31 - 2**20  # a thread counts beyond the last one


class ChannelSumsSolver:
    """``bgrad`` of floating-point tensors; channels, or the pixels of a channel, move 16 bytes at a time.

    Where neither are contiguous, elements move one by one.
    """

    name = "cuda_channel_sums"
    revision = 1
    features = USUAL | WINDOW | {"bgrad", "groups"}
    axes = (
        Axis("threads", (128, 256, 512, 1024), "Threads of a block, at most."),
        Axis("loads_ahead", (2, 4, 8), "Loads of a thread that are under way at once."),
        Axis("split_n", (), "Shares of the pixels, whose sums a second kernel adds."),
    )

    @remembered
    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        if not isinstance(problem, ConvGeometry):
            return Rejected(reasons.OP)
        if problem.direction != "bgrad":
            return Rejected(reasons.DIRECTION, problem.direction)
        if problem.y.dtype not in _DTYPES or problem.w.dtype != problem.y.dtype or problem.acc_dtype != "fp32":
            return Rejected(reasons.DTYPE, f"{problem.y.dtype} {problem.acc_dtype}")
        if problem.y.vector > 1:
            return Rejected(reasons.LAYOUT, "vector layout")
        form = sums_form(problem)
        if max(form.items, form.sums) > _MAX_ITEMS:
            return Rejected(reasons.SIZE, f"{form.items} loads for each of {form.sums} sums")
        return Accepted()

    @remembered
    def search_space(self, problem: Geometry, target: CudaTarget) -> SearchSpace:
        assert isinstance(problem, ConvGeometry)
        form, splits = sums_form(problem), [1]
        while splits[-1] < min(form.items, 8 * target.cores):
            splits.append(splits[-1] + max(1, splits[-1] // 4))
        return SearchSpace(
            {axis.name: axis.values or tuple(splits) for axis in self.axes},
            lambda config: not form.row or config["threads"] < 1024 or config["loads_ahead"] == 2,  # registers
        )

    @remembered
    def default_config(self, problem: Geometry, target: CudaTarget) -> Config:
        return self.ranked(problem, target)[0]

    @remembered
    def ranked(self, problem: Geometry, target: CudaTarget) -> tuple[Config, ...]:
        """All configs, the least estimate first."""
        space = self.search_space(problem, target)
        configs = (Config(tuple(zip(space.axes, point, strict=True))) for point in product(*space.axes.values()))
        return tuple(sorted(filter(space.allowed, configs), key=lambda config: self.predict(problem, config, target)))

    def predict(self, problem: Geometry, config: Config, target: CudaTarget) -> float:
        return sums_seconds(self._tile(problem, config, target), fit_of(target).sums)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return sums_draft(self._tile(problem, config, target))

    @staticmethod
    def _tile(problem: Geometry, config: Config, target: CudaTarget) -> SumsTile:
        assert isinstance(problem, ConvGeometry)
        return SumsTile(problem, config, target)
