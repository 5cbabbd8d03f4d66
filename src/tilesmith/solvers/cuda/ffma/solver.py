"""Exact fp32 matrix products on every CUDA arch since sm_80: single multiply-adds, no tensor cores.

Any strides are read in place; operands that are contiguous along k are transposed by the copies into shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilesmith.plan.records import Draft
from tilesmith.problems.features import GEMM, USUAL
from tilesmith.problems.geometry import GemmGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.dense import BYTES, DenseForm, dense_gemm, within_index
from tilesmith.solvers.cuda.ffma.cost import predicted_seconds
from tilesmith.solvers.cuda.ffma.draft import ffma_draft
from tilesmith.solvers.cuda.ffma.tile import FfmaTile
from tilesmith.solvers.solver import (
    Accepted,
    Axis,
    Config,
    Geometry,
    Rejected,
    SearchSpace,
    remembered,
    values_of,
)
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget

_SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
AXES = (
    Axis("block_m", (16, 32, 64, 96, 128, 192, 256), "Rows of the results of a block."),
    Axis("block_n", (32, 64, 96, 128, 192, 256), "Columns of the results of a block."),
    Axis("block_k", (8, 16, 32, 64), "Depth of a step of the ring."),
    Axis("warps_m", (1, 2, 4), "Warps along the rows of a block."),
    Axis("warps_n", (1, 2, 4), "Warps along the columns of a block."),
    Axis("warps_k", (1, 2, 4, 8), "Warps that share a part of the tile, each with its share of a step's depth."),
    Axis("stages", (2, 3, 4, 5), "Stages of the ring."),
    Axis("split_k", _SPLITS, "Parts of k that a second kernel adds."),
    Axis("stream_k", (0, 1), "1: the blocks of one wave share the steps of the last tiles evenly."),
    Axis("group_m", (1, 4, 8, 16), "Rows of tiles that are walked together."),
    Axis("producers", (0, 1), "1: a warpgroup of its own copies the operands, and all others multiply."),
)
# block_m, block_n, block_k, warps_m, warps_n, warps_k: what the untuned choice is made of; and with producers.
_PRODUCED = (
    (128, 256, 16, 2, 4, 1), (256, 128, 16, 4, 2, 1), (128, 256, 32, 2, 4, 1), (256, 128, 32, 4, 2, 1),
    (128, 128, 16, 4, 2, 1), (128, 128, 16, 2, 2, 1),
)  # fmt: skip
_SHAPES = (
    (128, 256, 8, 2, 4, 1), (256, 128, 8, 4, 2, 1), (128, 256, 16, 2, 4, 1), (256, 128, 16, 4, 2, 1),
    (128, 192, 16, 4, 2, 1), (128, 128, 8, 4, 2, 1), (128, 128, 16, 4, 2, 1), (128, 128, 16, 2, 2, 1),
    (128, 128, 16, 2, 2, 2), (96, 128, 16, 2, 2, 1), (96, 128, 16, 2, 2, 2), (128, 96, 16, 4, 1, 1),
    (192, 64, 16, 4, 1, 1), (96, 128, 8, 2, 2, 1),
    (64, 128, 16, 2, 2, 1), (128, 64, 16, 4, 1, 1), (64, 128, 16, 2, 2, 2), (128, 64, 16, 4, 1, 2),
    (64, 64, 16, 2, 1, 2), (64, 64, 32, 2, 1, 4), (32, 128, 32, 1, 2, 4), (64, 32, 32, 2, 1, 4), (32, 64, 32, 1, 1, 8),
    (32, 64, 32, 1, 1, 4), (32, 32, 32, 1, 1, 4), (32, 32, 32, 1, 1, 8), (16, 128, 32, 1, 2, 4), (16, 64, 32, 1, 1, 8),
    (128, 32, 32, 4, 1, 2), (16, 32, 32, 1, 1, 8), (16, 32, 32, 1, 1, 2), (32, 32, 16, 1, 1, 2),
)  # fmt: skip


class FfmaGemmSolver:
    """fp32 operands of any strides, batches, epilogues; fp32 sums of exact products."""

    name = "ffma_gemm"
    revision = 3
    features = USUAL | GEMM
    axes = AXES

    @remembered
    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        if not isinstance(problem, GemmGeometry):
            return Rejected(reasons.OP)
        form = within_index(dense_gemm(problem))
        if isinstance(form, Rejected):
            return form
        if (form.dtype, form.b_dtype) != ("fp32", "fp32"):
            return Rejected(reasons.DTYPE, f"{form.dtype} x {form.b_dtype}")
        if form.out_dtype in BYTES and not target.has_fp8:
            return Rejected(reasons.TARGET, "fp8")
        if not target.has_cp_async:
            return Rejected(reasons.TARGET, "cp.async")
        return Accepted() if next(_candidates(form, target), None) else Rejected(reasons.SIZE)

    def search_space(self, problem: Geometry, target: CudaTarget) -> SearchSpace:
        return _space(self._form(problem), target)

    @remembered
    def default_config(self, problem: Geometry, target: CudaTarget) -> Config:
        """The config that is predicted fastest."""
        fit = fit_of(target).ffma
        return min(_candidates(self._form(problem), target), key=lambda tile: predicted_seconds(tile, fit)).config

    def ranked(self, problem: Geometry, target: CudaTarget) -> Sequence[Config]:
        """Configs worth measuring: of those that are predicted fastest, the fastest of each shape first."""
        fit = fit_of(target).ffma
        found = [(predicted_seconds(tile, fit), tile.config) for tile in _candidates(self._form(problem), target)]
        return [config for _, config in sorted(found, key=lambda each: each[0])]

    def predict(self, problem: Geometry, config: Config, target: CudaTarget) -> float:
        return predicted_seconds(self.tile(problem, config, target), fit_of(target).ffma)

    def tile(self, problem: Geometry, config: Config, target: CudaTarget) -> FfmaTile:
        """The tiles and resources of ``config`` for ``problem``, from which its time is estimated."""
        return FfmaTile(self._form(problem), config, target)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        return ffma_draft(self.tile(problem, config, target))

    def _form(self, problem: Geometry) -> DenseForm:
        form = within_index(dense_gemm(problem)) if isinstance(problem, GemmGeometry) else Rejected(reasons.OP)
        if isinstance(form, Rejected):
            raise ValueError(f"{self.name} does not cover this problem: {form}")
        return form


def _space(form: DenseForm, target: CudaTarget) -> SearchSpace:
    sizes = values_of(AXES)
    axes = sizes | {
        "block_m": tuple(b for b in sizes["block_m"] if b < 2 * max(form.rows, 16)),
        "block_n": tuple(b for b in sizes["block_n"] if b < 2 * max(form.cols, 32)),
    }

    def allowed(config: Config) -> bool:
        t = FfmaTile(form, config, target)
        return t.fits and (config["group_m"] == 1 or (t.tiles_n > 1 and config["group_m"] < 2 * t.tiles_m))

    return SearchSpace(axes, allowed)


def _candidates(form: DenseForm, target: CudaTarget) -> Iterator[FfmaTile]:
    """The tiles of the untuned choice that fit."""
    space = _space(form, target)
    for (bm, bn, bk, wm, wn, wk), producers in (
        (shape, n) for n, shapes in enumerate((_SHAPES, _PRODUCED)) for shape in shapes
    ):
        if bm not in space.axes["block_m"] or bn not in space.axes["block_n"]:
            continue
        tiles = -(-form.rows // bm) * -(-form.cols // bn) * form.layers
        walk = 8 if -(-form.cols // bn) > 1 and 2 * -(-form.rows // bm) > 8 else 1
        first = FfmaTile(
            form,
            Config(tuple(zip(space.axes, (bm, bn, bk, wm, wn, wk, 4, 1, 0, walk, producers), strict=True))),
            target,
        )
        if not first.exists:
            continue
        for stages in (4, 3):  # where nothing tells them apart the deeper ring was no slower
            for split, stream in (*((split, 0) for split in _SPLITS), (1, 1)):
                # Splitting serves to fill the machine, no more.
                if split > 1 and tiles * split > 6 * target.cores:
                    continue
                tile = first.changed(stages=stages, split_k=split, stream_k=stream)
                if tile.fits:
                    yield tile
