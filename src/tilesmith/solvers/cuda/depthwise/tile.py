"""The resources of a config of depthwise convolution for a problem: tiles, threads, memory, blocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from tilesmith.problems.dtypes import dtype
from tilesmith.problems.geometry import ConvGeometry, TensorView
from tilesmith.solvers.cuda.common.dense import MAX_INDEX, widest
from tilesmith.solvers.cuda.common.depthwise import DepthwiseConfigured
from tilesmith.solvers.solver import Config, cached_property
from tilesmith.targets.target import CudaTarget

_MAX_TAPS = 128  # of a plane; where there are more, a loop goes over rows of inputs
_MAX_UNROLLED = 4096  # multiply-adds of a thread's tile
# Instructions of a tile whose rows are all in the text: beyond, kernels add more than 10 kB to a package. (Those of
# fp32 may: see `rolled`.)
_MOST_UNROLLED = 2110
_MOST_FROM_SHARED = 1550  # if the filter lies in shared memory
_MOST_OF_WEIGHTS = 1600
_MOST_OF_ROW = 400  # multiply-adds of a row of inputs, of which a loop's text has two
MAX_SUMS = 112
_MAX_SHARED = 48 * 1024
_MOST_LANES, _FEW_LANES = 64, 32  # along channels; few where the filters of many would fill shared memory
_MOST_OF_FILTERS = 96 * 1024  # bytes of `_FEW_LANES` filters; beyond, half as many share a block
_IN_REGISTERS = 56  # filter elements of a thread; more lie in shared memory


@dataclass(frozen=True)
class DepthwiseTile(DepthwiseConfigured):
    """``g`` computed as ``config`` says; see the axes above."""

    g: ConvGeometry
    config: Config
    target: CudaTarget

    @cached_property
    def lanes(self) -> int:
        """Threads side by side along channels: the fewest idle ones."""
        most = _FEW_LANES if self.many_taps else _MOST_LANES
        if self.many_taps and not self.weights and most * self.lane_bytes > _MOST_OF_FILTERS:
            most //= 2
        return _lanes(self.g.k // self.value["channels_per_thread"], min(self.value["threads"], most))

    @property
    def multiplier(self) -> int:
        """Results of a channel."""
        return self.g.k // self.g.c

    @property
    def most_shared(self) -> int:
        return self.target.shared_bytes_per_block if self.many_taps and not self.weights else _MAX_SHARED

    @property
    def many_taps(self) -> bool:
        return self.g.filter[1] * self.g.filter[2] > _MAX_TAPS

    @property
    def inputs(self) -> int:
        """Channels that a thread's results are sums of."""
        return max(1, self.value["channels_per_thread"] // self.multiplier)

    @cached_property
    def slots(self) -> int:
        """Tiles that a block computes side by side."""
        return max(1, self.value["threads"] // self.lanes)

    @cached_property
    def channel_blocks(self) -> int:
        return -(-(self.g.k // self.value["channels_per_thread"]) // self.lanes)

    @cached_property
    def image(self) -> tuple[int, int]:
        """The tiled image: the result's, or dy's for ``wrw``."""
        size = self.g.input if self.back else self.g.output
        return size[1], size[2]

    @property
    def filter_planes(self) -> int:
        return self.g.filter[0]

    @property
    def planes(self) -> float:
        """Planes of the filter that a thread's tile meets, on average: of backward weights each block has one."""
        return 1.0 if self.weights else self.filter_planes / (self.g.stride[0] if self.back else 1)

    @cached_property
    def tiles_h(self) -> int:
        return -(-self.image[0] // self.value["rows_per_thread"])

    @cached_property
    def tiles_w(self) -> int:
        return -(-self.image[1] // self.value["columns_per_thread"])

    @property
    def tiles(self) -> int:
        return self.g.n * self.result.shape[2] * self.tiles_h * self.tiles_w

    @cached_property
    def row_blocks(self) -> int:
        """Blocks along rows of the filter, in all its planes."""
        return -(-self.g.filter[1] // self.value["filter_rows"]) * self.g.filter[0] if self.weights else 1

    @cached_property
    def parts(self) -> int:
        """Blocks along tiles."""
        whole = -(-self.tiles // self.slots)
        if not self.weights:
            return whole
        wanted = self.target.cores * self.value["blocks_per_sm"] // (self.channel_blocks * self.row_blocks)
        return max(1, min(whole, wanted))

    @cached_property
    def in_shared(self) -> bool:
        return not self.weights and (self.filter_elements > _IN_REGISTERS or self.rolled)

    @property
    def filter_elements(self) -> int:
        """Of a thread's channels and one plane of the filter."""
        return self.g.filter[1] * self.g.filter[2] * self.value["channels_per_thread"]

    @cached_property
    def rolled(self) -> bool:
        """Whether a loop goes over rows of inputs: where the taps are many, or all rows in the text were too long.

        With few taps not in fp32, where tensor cores have no kernels and the loop takes up to 1.2 times the time, and
        not if rows are dilated, or strided backwards.
        """
        g = self.g
        steady = g.dilation[1] == 1 and (g.stride[1] == 1 if self.back else g.stride[1] <= g.filter[1])
        long = self.instructions > self.most_unrolled
        return not self.weights and (self.many_taps or (self.halves and steady and long))

    @property
    def halves(self) -> bool:
        return dtype(self.g.x.dtype).nbytes == 2

    @cached_property
    def most_unrolled(self) -> int:
        """The most ``instructions`` of a text in which no loop goes over rows."""
        if self.weights:
            return _MOST_OF_WEIGHTS
        return _MOST_UNROLLED if self.filter_elements <= _IN_REGISTERS else _MOST_FROM_SHARED

    @property
    def row_text(self) -> int:
        """Multiply-adds of a row of inputs; as many as the repair of backward data takes beside halves count too."""
        strided = self.g.stride[1] if self.back else 1  # the text has the taps of all residues of rows
        return self.work // self.g.filter[1] * strided + (20 if self.back and self.halves else 0)

    @cached_property
    def instructions(self) -> float:
        """Of the text of a tile, about, if all of it is unrolled."""
        (rows, columns), v = self.window, self.value
        results = v["rows_per_thread"] * v["columns_per_thread"]
        if self.weights:
            return self.work + 8 * (rows * columns + results)
        added = results * (12 + 10 * v["channels_per_thread"]) if self.g.epilogue.residual else 0
        return self.work + 8 * rows * columns + added

    @cached_property
    def span(self) -> int:
        """Taps that the threads of a block of backward weights add up at once."""
        one = self.lanes * self.slots * self.value["channels_per_thread"] * 4
        return max(1, min(self.g.filter[2], _MAX_SHARED // one))

    @cached_property
    def shared_bytes(self) -> int:
        if self.weights:
            return self.span * self.lanes * self.slots * self.value["channels_per_thread"] * 4
        return self.lanes * self.lane_bytes

    @property
    def lane_bytes(self) -> int:
        """Of the filters of a lane's channels in shared memory."""
        return prod(self.g.filter) * self.value["channels_per_thread"] * 4

    @cached_property
    def work(self) -> int:
        """Multiply-adds of a thread's tile with one plane of the filter."""
        v = self.value
        taps = (v["filter_rows"] if self.weights else self.g.filter[1]) * self.g.filter[2]
        strided = self.g.stride[1] * self.g.stride[2] if self.back else 1
        return v["rows_per_thread"] * v["columns_per_thread"] * v["channels_per_thread"] * taps // strided

    @cached_property
    def registers(self) -> int:
        """An estimate of a thread's registers."""
        v, g = self.value, self.g
        words = v["channels_per_thread"] * dtype(g.x.dtype).nbytes / 4
        step = (1, 1) if self.back else (g.stride[1], g.stride[2])
        columns = (v["columns_per_thread"] - 1) * step[1] + (g.filter[2] - 1) * g.dilation[2] + 1
        if self.weights:
            sums = v["filter_rows"] * g.filter[2] * v["channels_per_thread"]
            return int(
                sums
                + v["rows_per_thread"] * v["columns_per_thread"] * (words + v["channels_per_thread"] / 2)
                + columns * words
                + 48
            )
        # From shared memory the compiler still fetches it far ahead.
        rows = 2 if self.many_taps else g.filter[1]  # a loop's text has one or two
        filter_ = rows * g.filter[2] * v["channels_per_thread"] // (2 if self.in_shared else 1)
        return int(
            v["rows_per_thread"] * v["columns_per_thread"] * v["channels_per_thread"]
            + filter_
            + columns * words * (v["rows_ahead"] + 1)
            + 40
        )

    @cached_property
    def window(self) -> tuple[float, float]:
        """Rows and columns of inputs that a tile reads: on average, for backward data with a stride."""
        v, g = self.value, self.g
        sizes = (v["rows_per_thread"], v["columns_per_thread"])
        taps = (v["filter_rows"] if self.weights else g.filter[1], g.filter[2])
        found = []
        for size, count, stride, dilation in zip(sizes, taps, g.stride[1:], g.dilation[1:], strict=True):
            reach = (count - 1) * dilation
            found.append((size + reach - 1) / stride + 1 if self.back else (size - 1) * stride + reach + 1)
        return found[0], found[1]

    @cached_property
    def held_registers(self) -> int:
        """An estimate of the registers that the compiler gives a thread, which loads further ahead where it can.

        It keeps only some of the sums and of the filter at once where a row needs each tap once, and where phases of
        backward data come one after the other: numbers for these by least squares from 54 texts (NVRTC 13.0; standard
        deviation a sixth).
        """
        g, v = self.g, self.value
        rows, columns = self.window
        words = v["channels_per_thread"] * dtype(g.x.dtype).nbytes / 4
        sums = v["rows_per_thread"] * v["columns_per_thread"] * v["channels_per_thread"]
        filter_ = g.filter[1] * g.filter[2] * v["channels_per_thread"]
        if self.weights:
            held = self.registers + 0.5 * rows * columns * words + 16
        elif self.many_taps:  # it fetches two rows more than the text asks for
            held = 42 + sums + 4 * columns * words + g.filter[2] * v["channels_per_thread"]
        elif g.filter[1] == 1:
            held = 26 + 0.48 * sums + 1.35 * columns * words + (0.7 if self.in_shared else 0.19) * filter_
        elif self.back and max(g.stride) > 1:
            held = 35 + 0.31 * sums + filter_
        else:
            held = self.registers + (0.25 if max(g.stride) > 1 else 0.0) * rows * columns * words
        return min(255, max(32, int(held)))

    @cached_property
    def resident(self) -> int:
        """Blocks on an SM, about: backward weights bounds the registers of a thread for them."""
        warps, target = -(-self.lanes * self.slots // 32), self.target
        registers = -(-self.held_registers // 8) * 8
        blocks = min(target.registers_per_sm // (registers * 32 * warps), target.threads_per_sm // 32 // warps)
        if self.many_taps and not self.weights:
            blocks = min(blocks, target.shared_bytes_per_sm // (self.shared_bytes + 1024))
        return max(1, blocks)

    @cached_property
    def fits(self) -> bool:
        v, g = self.value, self.g
        if self.back and (v["rows_per_thread"] % g.stride[1] or v["columns_per_thread"] % g.stride[2]):
            return False
        if self.weights and (
            v["filter_rows"] * g.filter[2] * v["channels_per_thread"] > MAX_SUMS or v["filter_rows"] > g.filter[1]
        ):
            return False
        # NOTE: beyond these heights the compiler gives up unrolling, and sums go through local memory: 2 to 10 times
        # slower (H200, NVRTC 13.0).
        tallest = 4 if g.filter[1] >= 5 else 8 if self.weights else 14
        if v["rows_per_thread"] > max(tallest, g.stride[1] if self.back else 1):
            return False
        # Longer texts add more than 10 kB to a package, and so do three rows of inputs in a loop.
        if self.instructions > self.most_unrolled and not self.rolled and (self.halves or self.weights):
            return False
        if self.rolled and (v["rows_ahead"] > 1 or self.row_text > _MOST_OF_ROW):
            return False
        if (self.work > _MAX_UNROLLED and not self.many_taps) or self.registers > 200:
            return False
        if self.weights and self.held_registers > 224:
            return False
        vec, each = v["channels_per_thread"], self.multiplier
        if (vec % each and each % vec) or self.inputs > _vector(g.x, g.c):
            return False
        if vec > vector_of(g) or self.shared_bytes > self.most_shared or self.parts > MAX_INDEX:
            return False
        return self.channel_blocks <= 65535


@lru_cache(maxsize=256)
def _lanes(vectors: int, most: int) -> int:
    most = min(most, vectors)
    return min(range(max(1, most // 2), most + 1), key=lambda n: (-(-vectors // n) * n, -n))


@lru_cache(maxsize=256)
def vector_of(g: ConvGeometry) -> int:
    """How many channels of results can move at once."""
    return min(_vector(g.x, g.c), _vector(g.y, g.k)) if g.c == g.k else _vector(g.y, g.k)


def _vector(view: TensorView, channels: int) -> int:
    sizes, strides = (view.shape[0], *view.shape[2:]), (view.strides[0], *view.strides[2:])
    steps = [stride for size, stride in zip(sizes, strides, strict=True) if size > 1]
    return min(8, widest(16 // dtype(view.dtype).nbytes, [channels, *steps]))
