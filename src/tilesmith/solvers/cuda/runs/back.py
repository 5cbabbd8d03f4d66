"""Backward data of the same problems, and transposed convolutions: rows of dx are written whole.

Element ``e`` of a row of dx lies at column ``(e + pad) % step`` of position ``(e + pad) // step``, which sees the
pixels ``position - t`` of dy in the elements ``column + step * t`` of the filter's row. Rows and planes have positions
and phases, too: a block has the phases of some rows, with their part of the filter, and walks over positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, gcd, prod

from tilesmith.plan.slots import span_bytes
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.dense import MAX_INDEX, widest
from tilesmith.solvers.cuda.runs.form import PIECE, WHOLE_PIXELS, Rows, refused
from tilesmith.solvers.solver import Config, Configured, Rejected, cached_property, steady
from tilesmith.targets.target import CudaTarget

_MAX_PIECES = 48  # of the sums: a warp holds all that it multiplies
_MAX_STEP = 2048
_MAX_LOADS = 8  # of a thread, where channels come one by one


@dataclass(frozen=True)
class BackForm(Rows):
    """Of backward data; axes are (D, H, W)."""

    @cached_property
    def taps(self) -> tuple[int, int, int]:
        """Pixels of dy that a position sees along each axis."""
        d, h, w = (-(-f // s) for f, s in zip(self.g.filter, self.g.stride, strict=True))
        return d, h, w

    @cached_property
    def first(self) -> tuple[int, int, int]:
        """The first position."""
        d, h, w = (p // s for p, s in zip(self.g.padding, self.g.stride, strict=True))
        return d, h, w

    @cached_property
    def base(self) -> tuple[int, int, int]:
        """Positions."""
        last = ((n - 1 + p) // s for n, p, s in zip(self.g.input, self.g.padding, self.g.stride, strict=True))
        d, h, w = (end - begin + 1 for end, begin in zip(last, self.first, strict=True))
        return d, h, w

    @cached_property
    def pixel_pieces(self) -> int:
        """Pieces of 16 bytes of a pixel of dy, the last one filled up with zeros."""
        return ceil(self.g.k / PIECE)

    @cached_property
    def k_steps(self) -> int:
        """Sixteens of the sums."""
        return ceil(prod(self.taps) * self.pixel_pieces / 2)

    @cached_property
    def phases(self) -> int:
        """Rows of dx of a position."""
        return self.g.stride[0] * self.g.stride[1]

    @cached_property
    def in_vector(self) -> int:
        """Channels of dy that move at once: an asynchronous copy has at least 4 bytes."""
        view = self.g.y
        return widest(PIECE, [view.strides[axis] for axis in (0, 2, 3, 4) if view.shape[axis] > 1])

    @cached_property
    def out_vector(self) -> int:
        """Results that are stored at once."""
        view = self.g.x
        return widest(
            16 // dtype(view.dtype).nbytes, [view.strides[axis] for axis in (0, 2, 3) if view.shape[axis] > 1]
        )


@lru_cache(maxsize=256)
def back_form(g: ConvGeometry) -> BackForm | Rejected:
    """``g`` in the form, or why it has none."""
    if g.direction != "bwd":
        return Rejected(reasons.DIRECTION, g.direction)
    unread = refused(g, g.y, g.w, g.x, g.dilation)
    if unread:
        return unread
    form = BackForm(g)
    if g.c % PIECE == 0:
        return Rejected(reasons.CHANNELS, WHOLE_PIXELS)
    if form.step % PIECE or form.step > _MAX_STEP:
        return Rejected(reasons.STRIDE, f"{form.step} elements of a position: a multiple of {PIECE} up to {_MAX_STEP}")
    # Merged pixels have no channels that a bias could be added to.
    merged = gcd(g.stride[2], g.padding[2], g.padding_high[2], g.input[2], g.filter[2])
    if merged > 1 and not g.epilogue.bias:
        return Rejected(reasons.STRIDE, "pixels can be merged: see the rewritten problem")
    if 2 * form.k_steps > _MAX_PIECES:
        return Rejected(reasons.CHANNELS, f"{g.k} channels of dy in {prod(form.taps)} taps")
    if max(span_bytes(v.dtype, v.shape, v.strides) // dtype(v.dtype).nbytes for v in (g.x, g.w, g.y)) > MAX_INDEX:
        return Rejected(reasons.SIZE)
    return form


@dataclass(frozen=True)
class BackTile(Configured):
    """``form`` computed as ``config`` says; see the axes in ``solver``."""

    form: BackForm
    config: Config
    target: CudaTarget
    varied = frozenset(("blocks_per_sm",))

    @steady
    def tile_w(self) -> int:
        """Positions of a tile in a row: equal parts of all."""
        return ceil(self.form.base[2] / self.value["parts_w"])

    @steady
    def tile_h(self) -> int:
        return self.value["tile_h"]

    @steady
    def products(self) -> tuple[int, int]:
        """Products of 16 rows, and of 8 columns in a row of phases, of a warp."""
        v = self.value
        return ceil(self.tile_h * self.tile_w / (16 * v["warps_m"])), ceil(self.form.step / (8 * v["warps_n"]))

    @steady
    def warps(self) -> int:
        return self.value["warps_m"] * self.value["warps_n"]

    @steady
    def window(self) -> tuple[int, int, int]:
        d, h, w = self.form.taps
        return d, self.tile_h + h - 1, self.tile_w + w - 1

    @steady
    def pixel_bytes(self) -> int:
        """An odd multiple of 16: eight pixels lie in different banks."""
        return (self.form.pixel_pieces | 1) * 16

    @steady
    def window_bytes(self) -> int:
        return ceil(prod(self.window) * self.pixel_bytes / 128) * 128

    @steady
    def k_pairs(self) -> int:
        return ceil(self.form.k_steps / 2)

    @steady
    def filter_bytes(self) -> int:
        """Of a row of phases."""
        return self.form.step // 8 * self.k_pairs * 512

    @steady
    def staged_size(self) -> int:
        """Bytes of a staged result: a residual is added to sums."""
        return 4 if self.form.g.epilogue.residual else dtype(self.form.g.x.dtype).nbytes

    @steady
    def shift(self) -> int:
        """Elements before the first staged one, so that what is stored at once is aligned."""
        return -self.form.pad % self.form.out_vector

    @steady
    def staged_row(self) -> int:
        """Elements of a staged row."""
        return ceil((self.tile_w * self.form.step + self.shift) / 8) * 8

    @steady
    def shared_bytes(self) -> int:
        rows = self.value["phase_rows"] * self.tile_h
        staged = ceil(rows * self.staged_row * self.staged_size / 128) * 128
        return self.value["phase_rows"] * self.filter_bytes + 2 * self.window_bytes + staged

    @steady
    def groups(self) -> int:
        """Blocks with different phases."""
        return self.form.phases // self.value["phase_rows"]

    @steady
    def tiles_h(self) -> int:
        return ceil(self.form.base[1] / self.tile_h)

    @steady
    def tiles_w(self) -> int:
        return ceil(self.form.base[2] / self.tile_w)

    @steady
    def tiles(self) -> int:
        return self.form.g.n * self.form.base[0] * self.tiles_h * self.tiles_w

    @cached_property
    def blocks(self) -> int:
        each = max(1, self.target.cores * self.value["blocks_per_sm"] // self.groups)
        return self.groups * min(each, self.tiles)

    @steady
    def packed_words(self) -> int:
        return self.form.phases * self.filter_bytes // 4

    @steady
    def loads(self) -> int:
        """Pieces of a window that a thread moves."""
        return ceil(prod(self.window) * self.form.pixel_pieces / (32 * self.warps))

    @cached_property
    def fits(self) -> bool:
        v, t = self.value, self.target
        m, n = self.products
        if self.form.phases % v["phase_rows"] or self.tile_h > self.form.base[1] or v["parts_w"] > self.form.base[2]:
            return False
        if m * (v["warps_m"] - 1) * 16 >= self.tile_h * self.tile_w or n * (v["warps_n"] - 1) * 8 >= self.form.step:
            return False
        if self.form.in_vector == 1 and self.loads > _MAX_LOADS:
            return False
        each, registers = v["blocks_per_sm"], 4 * m * self.form.k_steps + 12 * m + 4 * self.k_pairs + 56
        registers += 4 * self.loads if self.form.in_vector == 1 else 0
        most = min(255, t.registers_per_sm // (ceil(self.warps * each / 4) * 128) // 8 * 8)
        if self.shared_bytes > t.shared_bytes_per_block or (self.shared_bytes + 1024) * each > t.shared_bytes_per_sm:
            return False
        return self.warps <= 16 and 32 * self.warps * each <= t.threads_per_sm and registers <= most
