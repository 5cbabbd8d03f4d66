"""The resources of a config of channels-first depthwise convolution."""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.problems.dtypes import dtype
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers.cuda.common.dense import MAX_INDEX, widest
from tilesmith.solvers.cuda.common.depthwise import DepthwiseConfigured
from tilesmith.solvers.solver import Config, cached_property
from tilesmith.targets.target import CudaTarget

_MAX_TAPS = 49
_MAX_UNROLLED = 1000  # multiply-adds of a thread; beyond, kernels add more than 10 kB to a package


@dataclass(frozen=True)
class PlanesTile(DepthwiseConfigured):
    """``g`` computed as ``config`` says; see the axes in ``solver``."""

    g: ConvGeometry
    config: Config
    target: CudaTarget

    @cached_property
    def image(self) -> tuple[int, int]:
        return self.result.shape[3], self.result.shape[4]

    @cached_property
    def tiles_h(self) -> int:
        return -(-self.image[0] // self.value["rows_per_thread"])

    @cached_property
    def taps(self) -> int:
        return self.g.filter[1] * self.g.filter[2]

    @cached_property
    def items(self) -> int:
        """Of threads, each a tile of results; for ``wrw`` vectors of dy of one channel."""
        vectors = self.image[1] // self.value["columns_per_thread"]
        if self.weights:
            return self.g.n * self.image[0] * vectors
        return self.g.n * self.g.c * self.tiles_h * vectors

    @cached_property
    def parts(self) -> int:
        """Blocks of a channel of backward weights."""
        wanted = -(-self.target.cores * self.value["blocks_per_sm"] // self.g.c)
        return max(1, min(wanted, -(-self.items // self.value["threads"])))

    @cached_property
    def blocks(self) -> int:
        return -(-self.items // self.value["threads"])

    @cached_property
    def work(self) -> int:
        """Multiply-adds of a tile."""
        return self.value["rows_per_thread"] * self.value["columns_per_thread"] * self.taps

    @cached_property
    def fits(self) -> bool:
        v = self.value
        if self.taps > _MAX_TAPS or self.work > _MAX_UNROLLED or v["columns_per_thread"] > vector_of(self.g):
            return False
        if v["rows_per_thread"] > self.image[0] or v["rows_per_thread"] * v["columns_per_thread"] > 64:
            return False
        return self.blocks <= MAX_INDEX and self.parts <= 65535


def vector_of(g: ConvGeometry) -> int:
    """How many neighbours of a row can move at once."""
    found = 8
    for view in (g.x, g.y):
        steps = [s for size, s in zip(view.shape[:4], view.strides[:4], strict=True) if size > 1]
        found = min(found, widest(16 // dtype(view.dtype).nbytes, [view.shape[4], *steps]))
    return found
