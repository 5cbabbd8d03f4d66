"""Dense problems on every CUDA arch since sm_80: convolution in all directions and GEMM from one template.

bf16, fp16, int8, fp8 and fp32 by way of TF32 run on tensor cores (``mma.sync``), convolutions in fp32 else as single
multiply-adds (matrix products: ``cuda/ffma``). Any strides are read in place; loads are as wide as the strides allow.

fp8 is widened to fp16 in registers: the tensor cores' own fp8 products are summed with some 13 bits of fraction
(measured by Zhang et al., SageAttention2, 2024), which is no fp32 sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import product

from tilesmith.plan.records import Draft
from tilesmith.problems.features import GEMM, USUAL, WINDOW
from tilesmith.problems.geometry import GemmGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.dense import BYTES, DenseForm, dense_gemm, within_index
from tilesmith.solvers.cuda.common.dense_conv import dense_conv
from tilesmith.solvers.cuda.common.listed import cheapest
from tilesmith.solvers.cuda.mma.cost import least_seconds, predicted_seconds
from tilesmith.solvers.cuda.mma.draft import mma_draft
from tilesmith.solvers.cuda.mma.tile import MAX_STAGES, SPLITS, MmaTile
from tilesmith.solvers.solver import (
    Accepted,
    Axis,
    Config,
    Geometry,
    Rejected,
    SearchSpace,
    Unranked,
    remembered,
    values_of,
)
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget

_STAGES = tuple(range(2, MAX_STAGES + 1))
AXES = (
    Axis("block_m", (16, 32, 64, 128, 256), "Rows of the results of a block."),
    Axis("block_n", (16, 32, 64, 128, 256), "Columns of the results of a block."),
    Axis("block_k", (16, 32, 64, 128), "Depth of a step of the ring."),
    Axis("warps_m", (1, 2, 4), "Warps along the rows of a block."),
    Axis("warps_n", (1, 2, 4), "Warps along the columns of a block."),
    Axis("stages", _STAGES, "Stages of the ring."),
    Axis("split_k", SPLITS, "Parts of k that a second kernel adds."),
    Axis("group_m", (1, 4, 8, 16), "Rows of tiles that are walked together."),
)
_NAMES = tuple(axis.name for axis in AXES)
# block_m, block_n, warps_m, warps_n: what the untuned choice is made of.
_TENSOR_SHAPES = (
    (128, 128, 2, 2), (128, 128, 4, 2), (128, 64, 2, 2), (64, 128, 2, 2), (64, 64, 2, 2), (128, 32, 4, 1),
    (64, 32, 2, 1), (32, 64, 1, 2), (256, 64, 4, 1), (64, 256, 1, 4), (128, 16, 4, 1), (64, 16, 4, 1), (16, 128, 1, 4),
    (32, 128, 1, 4), (256, 128, 4, 2), (128, 256, 2, 4), (16, 64, 1, 2), (32, 32, 2, 1), (16, 16, 1, 1),
)  # fmt: skip
_FLOAT_SHAPES = (
    (128, 128, 4, 2), (128, 64, 4, 1), (64, 64, 2, 2), (64, 128, 2, 2), (64, 32, 2, 1), (32, 64, 1, 2), (32, 32, 1, 1),
    (128, 32, 4, 1), (16, 64, 1, 2), (16, 32, 1, 1),
)  # fmt: skip


class MmaDenseSolver(Unranked):
    """Every layout without vectors, any channel counts, groups, strides, dilations, epilogues; fp32 sums."""

    revision = 5
    features = USUAL | GEMM | WINDOW | {"fwd", "bwd", "wrw", "groups", "acc=int32"}
    axes = AXES

    def __init__(self, exact: bool) -> None:
        self.exact = exact
        self.name = "ffma_dense" if exact else "mma_dense"

    @remembered
    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        if self.exact and isinstance(problem, GemmGeometry):
            return Rejected(reasons.OP, "fp32 products are those of ffma_gemm")
        form = dense_form(problem, self.exact)
        if isinstance(form, Rejected):
            return form
        if form.exact != self.exact:
            return Rejected(reasons.DTYPE, form.dtype)
        if not target.has_fp8 and any(name in BYTES for name in (form.dtype, form.b_dtype, form.out_dtype)):
            return Rejected(reasons.TARGET, "fp8")
        if not target.has_cp_async or (form.dtype == "bf16" and not target.has_bf16):
            return Rejected(reasons.TARGET, "cp.async")
        return Accepted() if _fits(form, target) else Rejected(reasons.SIZE)

    def search_space(self, problem: Geometry, target: CudaTarget) -> SearchSpace:
        return _space(self._form(problem), target)

    @remembered
    def default_config(self, problem: Geometry, target: CudaTarget) -> Config:
        return _default(self._form(problem), target)

    def predict(self, problem: Geometry, config: Config, target: CudaTarget) -> float:
        return predicted_seconds(self.tile(problem, config, target), fit_of(target).mma)

    def tile(self, problem: Geometry, config: Config, target: CudaTarget) -> MmaTile:
        """The tiles and resources of ``config`` for ``problem``, from which its time is estimated."""
        return MmaTile(self._form(problem), config, target)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return mma_draft(self.tile(problem, config, target))

    def _form(self, problem: Geometry) -> DenseForm:
        form = dense_form(problem, self.exact)
        if isinstance(form, Rejected):
            raise ValueError(f"the mma solver does not cover this problem: {form}")
        return form


@lru_cache(maxsize=256)
def dense_form(problem: Geometry, exact: bool = False) -> DenseForm | Rejected:
    """``problem`` in the form, or why it has none; ``exact``: without rounding to TF32, also where that is allowed."""
    form = dense_gemm(problem) if isinstance(problem, GemmGeometry) else dense_conv(problem)
    if problem.tf32 and not exact and not isinstance(form, Rejected):
        form = replace(form, dtype="tf32", b_dtype="tf32")
    return within_index(form)


def _space(form: DenseForm, target: CudaTarget) -> SearchSpace:
    # A product takes 32 bytes of a line.
    depths = (16, 32) if form.element_bytes == 4 else (16, 32, 64) if form.element_bytes == 2 else (32, 64, 128)
    sizes = values_of(AXES)
    axes = sizes | {
        "block_m": tuple(b for b in sizes["block_m"] if b < 2 * max(form.rows, 16)),
        "block_n": tuple(b for b in sizes["block_n"] if b < 2 * max(form.columns, 32)),
        "block_k": depths,
    }

    def allowed(config: Config) -> bool:
        t = MmaTile(form, config, target)
        return t.fits and (config["group_m"] == 1 or (t.tiles_n > 1 and config["group_m"] < 2 * t.tiles_m))

    return SearchSpace(axes, allowed)


def _default(form: DenseForm, target: CudaTarget) -> Config:
    """The cost model's choice among some hundreds of tiles."""
    space = _space(form, target)
    fit = fit_of(target).mma
    best = cheapest(_sizes(form, space, target), _changed, least_seconds, predicted_seconds, fit).config
    wider = best.replace(group_m=8)
    return wider if space.contains(wider) else best


def _fits(form: DenseForm, target: CudaTarget) -> bool:
    """Whether there is a tile for the form at all: where none of two stages fits, none of more stages or parts does."""
    return any(tile.fits for tile in _sizes(form, _space(form, target), target))


def _sizes(form: DenseForm, space: SearchSpace, target: CudaTarget) -> Iterator[MmaTile]:
    """A tile of each size, of two stages, whether or not it fits."""
    shapes = _FLOAT_SHAPES if form.exact else _TENSOR_SHAPES
    for bm, bn, wm, wn in shapes:
        if bm in space.axes["block_m"] and bn in space.axes["block_n"]:
            for bk in space.axes["block_k"]:
                values = (bm, bn, bk, wm, wn, 2, 1, 1)
                yield MmaTile(form, Config(tuple(zip(_NAMES, values, strict=True))), target)


def _changed(first: MmaTile) -> Iterator[MmaTile]:
    """Tiles of the size of ``first``."""
    return (first.changed(stages=stages, split_k=split) for stages, split in product(_STAGES, first.splits))
