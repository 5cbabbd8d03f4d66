"""Convolution with steps of 1 by wgmma on windows with their halo: each pixel is copied once for all taps."""

from __future__ import annotations

from collections.abc import Iterator

from tilesmith.plan.records import Draft
from tilesmith.problems.features import ACTIVATED, USUAL
from tilesmith.problems.geometry import ConvGeometry, TensorView
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.conv_form import conv_form
from tilesmith.solvers.cuda.common.form import Sm90Form, aligned, steps_along, stores_whole
from tilesmith.solvers.cuda.halo.draft import halo_draft
from tilesmith.solvers.cuda.halo.tile import HaloTile, halo_seconds
from tilesmith.solvers.solver import Accepted, Axis, Config, Geometry, Rejected, SearchSpace, remembered, values_of
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget

_SHAPES = ((1, 0), (2, 0), (2, 1), (3, 0))  # warpgroups, pingpong
AXES = (
    Axis("warpgroups", (1, 2, 3), "Multiplying warpgroups of a block."),
    Axis("pingpong", (0, 1), "1: each warpgroup has a tile of its own."),
    Axis("tile_h", (), "Rows of pixels of a tile."),
    Axis("tile_w", (), "Pixels of each of its rows."),
    Axis("windows", (2, 3, 4), "Windows that are held at once."),
    Axis("resident", (0, 1), "1: the filter stays in shared memory."),
    Axis("block_k", (64, 32), "Channels of a step."),
)


class HaloSm90Solver:
    """Forward and backward data, several taps, channels-last tensors whose pixels are multiples of 16 bytes."""

    name = "wgmma_halo"
    revision = 5
    features = USUAL | ACTIVATED | {"fwd", "bwd", "bias", "padding", "padding_high", "dilation", "depth"}
    axes = AXES

    @remembered
    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        if not isinstance(problem, ConvGeometry):
            return Rejected(reasons.OP)
        if not (target.has_wgmma and target.has_tma):
            return Rejected(reasons.TARGET, "wgmma")
        form = _halo_form(problem)
        if isinstance(form, Rejected):
            return form
        if next(_candidates(form, target), None) is None:
            return Rejected(reasons.FILTER, f"no window of a filter {problem.filter} fits")
        return Accepted()

    def search_space(self, problem: Geometry, target: CudaTarget) -> SearchSpace:
        form = _form(problem)
        widths, heights = _extents(form)
        axes = values_of(AXES) | {"tile_h": heights, "tile_w": widths, "block_k": _depths(form)}
        return SearchSpace(axes, lambda config: HaloTile(form, config, target).fits)

    @remembered
    def default_config(self, problem: Geometry, target: CudaTarget) -> Config:
        return self.ranked(problem, target)[0]

    def ranked(self, problem: Geometry, target: CudaTarget) -> list[Config]:
        """Configs worth measuring, the untuned choice first."""
        form, fit = _form(problem), fit_of(target).halo
        return sorted(_candidates(form, target), key=lambda config: halo_seconds(HaloTile(form, config, target), fit))

    def predict(self, problem: Geometry, config: Config, target: CudaTarget) -> float:
        return halo_seconds(self.tile(problem, config, target), fit_of(target).halo)

    def tile(self, problem: Geometry, config: Config, target: CudaTarget) -> HaloTile:
        """What ``config`` means for ``problem``: what its time is estimated from."""
        return HaloTile(_form(problem), config, target)

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        assert isinstance(problem, ConvGeometry)
        return halo_draft(self.tile(problem, config, target), _result(problem))


def _result(g: ConvGeometry) -> TensorView:
    return g.x if g.direction == "bwd" else g.y


def _halo_form(g: ConvGeometry) -> Sm90Form | Rejected:
    if g.direction not in ("fwd", "bwd"):
        return Rejected(reasons.DIRECTION, g.direction)
    form = conv_form(g)
    if isinstance(form, Rejected):
        return form
    if max(g.stride) > 1:
        return Rejected(reasons.STRIDE, f"stride {g.stride}")
    if len(form.taps.offset) < 2:
        return Rejected(reasons.FILTER, "a single tap has no halo")
    if form.epilogue.residual or form.out_dtype != form.dtype:
        return Rejected(reasons.EPILOGUE, "a residual, or a wider result")
    result = _result(g)
    sizes = (result.shape[0], *result.shape[2:])
    if not aligned(*steps_along(sizes, (result.strides[0], *result.strides[2:]))):
        return Rejected(reasons.LAYOUT, f"pixels of {result.name} are no multiples of 16 bytes")
    if not stores_whole(result.shape[1], result.owns_gaps):
        return Rejected(reasons.LAYOUT, f"channels of {result.name} are no multiples of 16 bytes")
    return form


def _form(problem: Geometry) -> Sm90Form:
    assert isinstance(problem, ConvGeometry)
    form = _halo_form(problem)
    if isinstance(form, Rejected):
        raise ValueError(f"the halo solver does not cover this problem: {form}")
    return form


def _depths(form: Sm90Form) -> tuple[int, ...]:
    return (64,) if form.channels > 32 else (64, 32)


def _extents(form: Sm90Form) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Widths that divide a row evenly, and heights."""
    window = form.a
    width, height = window.base[0], window.base[1]  # type: ignore[union-attr]
    widths = sorted(
        {-(-width // parts) for parts in (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)} | {min(w, width) for w in (16, 32, 64)}
    )
    heights = sorted({h for h in (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, -(-height // 2), height) if h <= height})
    return tuple(w for w in widths if w <= 254), tuple(h for h in heights if h <= 64)


def _candidates(form: Sm90Form, target: CudaTarget) -> Iterator[Config]:
    widths, heights = _extents(form)
    for wgs, pp in _SHAPES:
        for tw in widths:
            for th in heights:
                if th * tw > 256 or (th * tw < 48 and (th, tw) != (heights[-1], widths[-1])):
                    continue
                for bk in _depths(form):
                    for resident in (1, 0):
                        values = {
                            "warpgroups": wgs, "pingpong": pp, "tile_h": th, "tile_w": tw, "windows": 2,
                            "resident": resident, "block_k": bk,
                        }  # fmt: skip
                        config = Config(tuple(values.items()))
                        if HaloTile(form, config, target).fits:
                            yield config
