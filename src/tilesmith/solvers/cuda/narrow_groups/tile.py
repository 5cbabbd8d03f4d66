"""Bundles of groups, taps by phase, windows and memory of the kernels of narrow groups."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, gcd, prod

from tilesmith.codegen.cuda.activation import LONG
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.geometry import ConvGeometry, TensorView
from tilesmith.solvers.cuda.common.dense import widest
from tilesmith.solvers.solver import Config, Configured, cached_property, steady
from tilesmith.targets.target import CudaTarget

MAX_STEPS, MAX_THREADS = 80, 1024
_MANY_RESULTS = 32
Taps = tuple[tuple[int, int], ...]  # (step from the window's corner, index in the filter)


@dataclass(frozen=True)
class NarrowForm:
    """What is read and written: ``source`` and ``result`` with ``inputs`` and ``outputs`` channels a group.

    For ``wrw`` these are x and dy, which are both read; of one group, both are counted in whole pieces. Of H and W:
    ``step`` from tile to window, ``phases`` of the result, the window's ``corner``, the taps of each phase, and how far
    they ``reach``.
    """

    geometry: ConvGeometry
    source: TensorView
    result: TensorView
    inputs: int
    outputs: int
    step: tuple[int, int]
    phases: tuple[int, int]
    corner: tuple[int, int]
    taps: tuple[tuple[Taps, ...], tuple[Taps, ...]]

    @cached_property
    def piece(self) -> int:
        """Channels that are 16 bytes."""
        return 16 // dtype(self.source.dtype).nbytes

    @property
    def exact(self) -> bool:
        """Single fp32 multiply-adds, no tensor cores."""
        return self.source.dtype == "fp32"

    @cached_property
    def bundle(self) -> int:
        """Groups whose channels are whole pieces; for ``wrw`` on both sides."""
        return self.piece // gcd(self.inputs, self.piece, self.outputs if self.geometry.direction == "wrw" else 8)

    @cached_property
    def pieces(self) -> int:
        return self.bundle * self.inputs // self.piece

    @cached_property
    def bundles(self) -> int:
        return ceil(self.geometry.groups / self.bundle)

    @cached_property
    def columns(self) -> int:
        """Results of a bundle."""
        return self.bundle * self.outputs

    @cached_property
    def steps(self) -> int:
        """Steps of 16 products of all phases."""
        pieces = self.geometry.filter[0] * self.pieces
        return sum(ceil(len(h) * len(w) * pieces / 2) for h in self.taps[0] for w in self.taps[1])

    @cached_property
    def reach(self) -> tuple[int, int]:
        h, w = (max((at for taps in axis for at, _ in taps), default=0) for axis in self.taps)
        return h, w

    @cached_property
    def base(self) -> tuple[int, int]:
        """Pixels of a phase (H, W)."""
        _, _, _, h, w = self.result.shape
        return ceil(h / self.phases[0]), ceil(w / self.phases[1])

    @cached_property
    def repair(self) -> bool:
        """Whether zeros can meet a NaN or an Inf in products that the definition has not."""
        return (self.bundle > 1 and not self.exact) or self.geometry.direction == "bwd"


@lru_cache(maxsize=256)
def narrow_form(g: ConvGeometry) -> NarrowForm:
    back = g.direction == "bwd"
    source, result = (g.y, g.x) if back else (g.x, g.y)
    inputs, outputs = (g.k, g.c) if back else (g.c, g.k)
    axes = [_axis(g, i) for i in (1, 2)]
    corner = [min((at for taps in axis for at, _ in taps), default=0) for axis in axes]
    h, w = (
        tuple(tuple((at - first, r) for at, r in taps) for taps in axis)
        for axis, first in zip(axes, corner, strict=True)
    )
    stride = (g.stride[1], g.stride[2])
    inputs, outputs = inputs // g.groups, outputs // g.groups
    if g.direction == "wrw" and g.groups == 1:
        inputs, outputs = (ceil(count / 8) * 8 for count in (inputs, outputs))
    return NarrowForm(
        g, source, result, inputs, outputs, (1, 1) if back else stride,
        (len(h), len(w)), (corner[0], corner[1]), (h, w),
    )  # fmt: skip


def load_of(view: TensorView) -> int:
    """Channels that an asynchronous copy can move at once, at most 16 bytes: less than 4 bytes are none."""
    steps = [step for axis, step in enumerate(view.strides) if axis != 1 and view.shape[axis] > 1]
    return widest(16 // dtype(view.dtype).nbytes, steps)


def _axis(g: ConvGeometry, i: int) -> list[list[tuple[int, int]]]:
    """The taps of each phase of an axis: position from the phase's first pixel, index in the filter."""
    s, p, d, f = g.stride[i], g.padding[i], g.dilation[i], g.filter[i]
    if g.direction != "bwd":
        return [[(r * d - p, r) for r in range(f)]]
    return [
        sorted(((phase + p - r * d) // s, r) for r in range(f) if (phase + p - r * d) % s == 0)
        for phase in range(min(s, g.input[i]))
    ]


@dataclass(frozen=True)
class NarrowTile(Configured):
    """``form`` computed as ``config`` says, for ``fwd`` and ``bwd``; see the axes in ``solver``."""

    form: NarrowForm
    config: Config
    target: CudaTarget
    varied = frozenset(("blocks_per_sm",))

    @steady
    def weights(self) -> bool:
        return self.form.geometry.direction == "wrw"

    @steady
    def parts_n(self) -> int:
        """Warps that share the results of a bundle."""
        return ceil(ceil(self.form.columns / 8) / self.value["products_n"])

    @steady
    def threads(self) -> int:
        return self.value["warps_m"] * self.value["bundles"] * self.parts_n * 32

    @steady
    def load_in(self) -> int:
        """Channels that a copy to a window moves at once."""
        return load_of(self.form.source) if self.weights else self.form.piece

    @steady
    def tiles_m(self) -> int:
        """Products along the rows of a warp: pixels, or for ``wrw`` pieces of taps."""
        return ceil(self.rows / (16 * self.value["warps_m"]))

    @property
    def in_turns(self) -> bool:
        """Whether the text has the products and results of half of a warp's pixels: long results of all are 12 kB."""
        epilogue, results = self.form.geometry.epilogue, 4 * self.tiles_m * self.value["products_n"]
        many = not self.form.exact and self.tiles_m % 2 == 0 and results >= _MANY_RESULTS
        return many and epilogue.activation in LONG and not epilogue.residual

    @property
    def copied(self) -> bool:
        """Whether the filter comes by copies of pairs of elements: those of a piece fit where results will be."""
        f, g = self.form, self.form.geometry
        paired = (f.outputs if g.direction == "bwd" else f.inputs) % 2 == 0 and load_of(g.w) % 2 == 0
        room = self.shared_bytes - (self.value["stages"] - 1) * self.window_bytes
        return paired and room >= prod(g.filter) * self.value["bundles"] * self.parts_n * 128

    @steady
    def rows(self) -> int:
        return self.value["tile_h"] * self.value["tile_w"]

    @steady
    def window(self) -> tuple[int, int]:
        """Size of a window (H, W) of one plane: a tile lies in one, and has a window for each plane of the filter."""
        v, f = self.value, self.form
        return (
            (v["tile_h"] - 1) * f.step[0] + f.reach[0] + 1,
            (v["tile_w"] - 1) * f.step[1] + f.reach[1] + 1,
        )

    @steady
    def window_rows(self) -> int:
        """Of all planes that a filter meets."""
        return self.form.geometry.filter[0] * self.window[0]

    @steady
    def pixel_bytes(self) -> int:
        """From pixel to pixel in shared memory: an odd number of pieces, so that rows differ in their banks."""
        return (self.value["bundles"] * self.form.pieces | 1) * 16

    @steady
    def pitch_w(self) -> int:
        """Pixels from row to row of a window: so many that, if they can, pixels of two rows differ in their banks."""
        step_h, step_w = self.form.step
        least = ceil(self.window[1] / step_w) * step_w
        wanted = (p for p in range(least, least + 8) if (p * step_h - self.value["tile_w"]) % 8 == 0)
        return next(wanted, least)

    @steady
    def window_bytes(self) -> int:
        return ceil(self.window_rows * self.pitch_w * self.pixel_bytes / 128) * 128

    @steady
    def row(self) -> int:
        """Results of a pixel of a block."""
        return self.value["bundles"] * self.form.columns

    @steady
    def vector(self) -> int:
        """Results that are stored at once."""
        view = self.form.result
        steps = [s for s, size in zip(view.strides, view.shape, strict=True) if size > 1 and s != 1]
        return gcd(16 // dtype(view.dtype).nbytes, self.row, view.shape[1], *steps)

    @steady
    def staged_pitch(self) -> int:
        size = 4 if self.form.geometry.epilogue.residual else dtype(self.form.result.dtype).nbytes
        return (ceil(self.row * size / 16) | 1) * 16

    @steady
    def zero(self) -> int:
        return self.value["stages"] * self.window_bytes

    @steady
    def staged(self) -> int:
        return self.zero + 16

    @steady
    def shared_bytes(self) -> int:
        return self.staged + self.value["tile_h"] * self.value["tile_w"] * self.staged_pitch

    @steady
    def blocks(self) -> int:
        """Blocks of bundles."""
        return ceil(self.form.bundles / self.value["bundles"])

    @steady
    def across(self) -> tuple[int, int]:
        """Tiles along H and W."""
        (h, w), v = self.form.base, self.value
        return ceil(h / v["tile_h"]), ceil(w / v["tile_w"])

    @steady
    def tiles(self) -> int:
        return prod(self.across) * self.form.result.shape[2] * self.form.geometry.n

    @steady
    def registers(self) -> int:
        """An estimate of the registers that a thread cannot do without."""
        n, filter_ = self.value["products_n"], self.form.steps * self.value["products_n"] * 2
        fixed = 32 if prod(self.form.phases) == 1 else 100
        return filter_ * 4 // 3 + self.tiles_m * (4 * n + 1) + 2 * n + fixed

    @cached_property
    def register_limit(self) -> int:
        """Registers that a thread may have: each quarter of an SM holds a quarter of its blocks' warps."""
        warps = ceil(self.threads // 32 * self.value["blocks_per_sm"] / 4)
        return min(255, self.target.registers_per_sm // 4 // (warps * 32) // 8 * 8)

    @cached_property
    def resident(self) -> int:
        """Blocks that an SM holds."""
        target = self.target
        by_shared = target.shared_bytes_per_sm // (self.shared_bytes + 1024)
        return min(by_shared, target.threads_per_sm // self.threads, self.value["blocks_per_sm"])

    @cached_property
    def grid(self) -> int:
        shares = max(1, self.target.cores * self.value["blocks_per_sm"] // self.blocks)
        return self.blocks * min(self.tiles, shares)

    @steady
    def _exists(self) -> bool:
        """Whether there are such products, however many blocks share an SM."""
        n, columns = self.value["products_n"], ceil(self.form.columns / 8)
        return self.parts_n * n <= columns + n - 1 and self.tiles_m <= 16 and self._has_room

    @steady
    def _has_room(self) -> bool:
        v, f = self.value, self.form
        if self.threads > MAX_THREADS or v["tile_h"] > f.base[0] or v["tile_w"] > f.base[1] or v["bundles"] > f.bundles:
            return False
        return self.shared_bytes <= self.target.shared_bytes_per_block

    @cached_property
    def fits(self) -> bool:
        many = self.value["blocks_per_sm"]
        return self._exists and self.registers <= self.register_limit and self.resident >= many


class NarrowWeightsTile(NarrowTile):
    """The same for ``wrw``: the rows of products are channels of taps, and stages hold a tile of dy beside x."""

    @steady
    def rows(self) -> int:
        return prod(self.form.geometry.filter) * self.form.pieces * 8

    @steady
    def load_out(self) -> int:
        """Channels of dy that a copy moves at once."""
        return load_of(self.form.result)

    @steady
    def pixels(self) -> int:
        """Pixels of a tile, and zeros behind them."""
        return ceil(self.value["tile_h"] * self.value["tile_w"] / 32) * 32

    @steady
    def result_bytes(self) -> int:
        """From pixel to pixel of dy in shared memory."""
        return (self.row // 8 | 1) * 16

    @steady
    def stage_bytes(self) -> int:
        return self.window_bytes + self.pixels * self.result_bytes

    @steady
    def table(self) -> int:
        return self.value["stages"] * self.stage_bytes

    @steady
    def shared_bytes(self) -> int:
        return self.table + self.pixels * 4

    @steady
    def registers(self) -> int:
        n = self.value["products_n"]
        return self.tiles_m * (4 * n + 1) + 4 * n + 64

    @steady
    def sums(self) -> int:
        """Registers of sums of a thread."""
        return self.tiles_m * self.value["products_n"] * 4

    @steady
    def warps(self) -> int:
        return self.threads // 32

    @property
    def partial_bytes(self) -> int:
        return self.grid * self.threads * self.sums * 4


class NarrowExactTile(NarrowTile):
    """``fwd`` and ``bwd`` in fp32: a warp has a group, and ``products_n`` times 8 of its results."""

    @steady
    def groups(self) -> int:
        """Groups of a block."""
        return self.value["bundles"] * self.form.bundle

    @steady
    def parts_n(self) -> int:
        return ceil(self.form.outputs / (8 * self.value["products_n"]))

    @steady
    def threads(self) -> int:
        return self.value["warps_m"] * self.groups * self.parts_n * 32

    @steady
    def tiles_m(self) -> int:
        """Pixels of a thread."""
        return ceil(self.rows / (32 * self.value["warps_m"]))

    @steady
    def filter_bytes(self) -> int:
        columns = self.parts_n * 8 * self.value["products_n"]
        return self.groups * prod(self.form.geometry.filter) * self.form.inputs * columns * 4

    @steady
    def staged(self) -> int:
        return self.zero + self.filter_bytes

    @steady
    def registers(self) -> int:
        n = self.value["products_n"] * 8
        return self.tiles_m * (n + 5) + n + 44

    @steady
    def _exists(self) -> bool:
        whole = self.parts_n * self.value["products_n"] < ceil(self.form.outputs / 8) + self.value["products_n"]
        return self.tiles_m <= 8 and whole and self._has_room


def tile_of(g: ConvGeometry, config: Config, target: CudaTarget) -> NarrowTile:
    """The tile of ``config`` for the direction of ``g``."""
    form = narrow_form(g)
    return kind_of(form)(form, config, target)


def kind_of(form: NarrowForm) -> type[NarrowTile]:
    """The tiles of the form's direction."""
    return NarrowWeightsTile if form.geometry.direction == "wrw" else NarrowExactTile if form.exact else NarrowTile
