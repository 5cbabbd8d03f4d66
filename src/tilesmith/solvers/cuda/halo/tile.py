"""Windows, memory and blocks of the sm_90a kernel that reads each window of pixels once (``kernel.cu``)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, prod

from tilesmith.problems.geometry import ConvGeometry, TensorView
from tilesmith.solvers.cuda.common.form import Sm90Form, Window
from tilesmith.solvers.cuda.common.planes import leaves_out, multiplies_padding
from tilesmith.solvers.cuda.common.sm90 import three
from tilesmith.solvers.cuda.common.tile import MAX_BOX, WarpgroupTile
from tilesmith.solvers.solver import Config, cached_property
from tilesmith.targets.target import CudaTarget

_BARRIERS = 512


Extent = tuple[int, int, int]


def _extent(values: Iterable[int], fill: int = 0) -> Extent:
    w, h, d = three(tuple(values), fill)
    return w, h, d


@dataclass(frozen=True)
class _Tap:
    """A tap of the filter: for the result at pixel 0 it reads pixel ``at * step + phase``, by axis (W, H, D)."""

    phase: Extent
    at: Extent
    offset: int  # as in ``Taps``
    index: int


def result_of(g: ConvGeometry) -> TensorView:
    """The tensor that is written."""
    return g.x if g.direction == "bwd" else g.y


@dataclass(frozen=True)
class HaloTile(WarpgroupTile):
    """``form`` (one layer) in tiles of ``th`` x ``tw`` pixels and 64 channels a warpgroup.

    ``geometry`` and ``form`` are those of one of the ``groups``.
    """

    geometry: ConvGeometry
    form: Sm90Form
    config: Config
    target: CudaTarget
    groups: int = 1

    @cached_property
    def pixels(self) -> Window:
        assert isinstance(self.form.a, Window)
        return self.form.a

    @property
    def result(self) -> TensorView:
        return result_of(self.geometry)

    @cached_property
    def taps(self) -> tuple[_Tap, ...]:
        """The filter's taps in the order in which they are multiplied: those that meet the same phase together."""
        axes = tuple(zip(self.pixels.corner, self.pixels.step, strict=True))
        found = []
        for offset, index in zip(self.form.taps.offset, self.form.taps.index, strict=True):
            met = [divmod(corner + (offset >> 8 * i & 255), step) for i, (corner, step) in enumerate(axes)]
            found.append(_Tap(_extent(r for _, r in met), _extent(q for q, _ in met), offset, index))
        return tuple(sorted(found, key=lambda tap: tap.phase[::-1]))

    @cached_property
    def phases(self) -> tuple[Extent, ...]:
        """Residues (W, H, D) of the pixels that taps meet; one without a stride."""
        return tuple(dict.fromkeys(tap.phase for tap in self.taps))

    @property
    def step(self) -> Extent:
        """The stride by axis (W, H, D)."""
        return _extent(self.pixels.step, 1)

    @cached_property
    def _least(self) -> Extent:
        return _extent(min(tap.at[i] for tap in self.taps) for i in range(3))

    @cached_property
    def corner(self) -> Extent:
        """The pixel (W, H, D) where the first tile's window of the first residue begins."""
        return _extent(least * step for least, step in zip(self._least, self.step, strict=True))

    @cached_property
    def window(self) -> Extent:
        """A window's size (W, H, D), in pixels of its phase."""
        w, h, d = (max(tap.at[i] for tap in self.taps) - self._least[i] for i in range(3))
        return self.value["tile_w"] + w, self.value["tile_h"] + h, 1 + d

    @property
    def box(self) -> Extent:
        """Pixels of the tensor from a window's first to its last, by axis (W, H, D): of all phases."""
        return _extent((size - 1) * step + 1 for size, step in zip(self.window, self.step, strict=True))

    @cached_property
    def rows(self) -> tuple[int, ...]:
        """For each tap, the window's pixel that the tile's first one meets."""
        (w, h, _), least = self.window, self._least
        places = (tuple(tap.at[i] - least[i] for i in range(3)) for tap in self.taps)
        return tuple((d * h + r) * w + s for s, r, d in places)

    @cached_property
    def block_n(self) -> int:
        """Columns of a product: pixels, and what lies between the end of a row and the next."""
        return ceil(((self.value["tile_h"] - 1) * self.window[0] + self.value["tile_w"]) / 8) * 8

    @cached_property
    def block_m(self) -> int:
        return 64 * (1 if self.pingpong else self.warpgroups)

    @cached_property
    def blocks(self) -> int:
        return ceil(self.form.channels / self.block_k)

    @cached_property
    def products(self) -> int:
        """Products of 16 channels of a block: no more than a single block has channels."""
        return ceil((min(self.form.channels, self.block_k) if self.blocks == 1 else self.block_k) / 16)

    @cached_property
    def window_bytes(self) -> int:
        w, h, d = self.window
        return ceil(w * h * d * self.block_k * 2 / 1024) * 1024

    @cached_property
    def filter_bytes(self) -> int:
        """Bytes of one tap of one block of channels."""
        return self.block_m * self.block_k * 2

    @cached_property
    def _fixed_bytes(self) -> int:
        staging = ceil(self.value["tile_h"] * self.value["tile_w"] * 128 / 1024) * 1024 * self.warpgroups
        return self.value["windows"] * self.window_bytes + staging + 512 + _BARRIERS + 1024

    @cached_property
    def stages(self) -> int:
        """Stages of the filter's ring: all that fit."""
        room = self.target.shared_bytes_per_block - self._fixed_bytes
        return min(8, room // self.filter_bytes, max(2, self.blocks * len(self.rows)))

    @cached_property
    def shared_bytes(self) -> int:
        count = self.blocks * len(self.rows) if self.value["resident"] else self.stages
        return self._fixed_bytes + ceil(count * self.filter_bytes / 1024) * 1024

    @cached_property
    def tiles_each(self) -> int:
        """Tiles of the channels of a group."""
        return ceil(self.form.cols / self.block_m)

    @cached_property
    def tiles_m(self) -> int:
        """Tiles of the channels of all groups."""
        return self.tiles_each * self.groups

    @cached_property
    def across(self) -> tuple[int, int]:
        """Tiles along W and H."""
        return ceil(self.pixels.base[0] / self.value["tile_w"]), ceil(self.pixels.base[1] / self.value["tile_h"])

    @cached_property
    def tiles(self) -> int:
        return self.tiles_m * prod(self.across) * prod(self.pixels.base[2:]) * self.pixels.dims[-1]

    @cached_property
    def grid(self) -> int:
        """Blocks; a block that keeps its filter has tiles of the same channels alone."""
        blocks = min(self.tiles, self.target.cores)
        return blocks // self.tiles_m * self.tiles_m if self.value["resident"] else blocks

    @property
    def sums(self) -> int:
        return self.block_n // 2

    @cached_property
    def left_out(self) -> float:
        """The share of the taps that tiles leave out: of a filter that stays, and with a stride, none."""
        whole = self.value["resident"] or max(self.step) > 1
        return 0.0 if whole else leaves_out(self.form, self.target)

    @property
    def looks(self) -> bool:
        """Whether a kernel before the convolution has to look for Inf and NaN in what the tiles leave out."""
        return self.left_out > 0 and multiplies_padding(self.form)

    @cached_property
    def fits(self) -> bool:
        v = self.value
        if (
            self.block_n > (192 if v["warpgroups"] == 3 else 256)
            or max(self.box) > MAX_BOX
            or (self.pingpong and v["warpgroups"] != 2)
        ):
            return False
        if v["resident"] and (self.tiles_each > 1 or self.tiles_m > self.target.cores):
            return False
        # NOTE: a map of three spatial axes has none left for the groups, and fills nothing between them.
        if self.groups > 1 and self.form.rank == 5 and (self.form.channels % self.block_k or self.form.cols % 64):
            return False
        if v["tile_h"] > self.pixels.base[1] or v["tile_w"] > self.pixels.base[0]:
            return False
        return self.stages >= 2 and self.shared_bytes <= self.target.shared_bytes_per_block
