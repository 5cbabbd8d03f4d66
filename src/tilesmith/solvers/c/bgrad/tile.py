"""From a bias gradient and a config to the numbers that the text holds."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilesmith.problems.geometry import ConvGeometry, TensorView
from tilesmith.solvers.solver import Config
from tilesmith.targets.target import CpuTarget

# Pixels of one image below which rows are joined even if that leaves one row to share between threads.
_JOINED = 4096


@dataclass(frozen=True)
class BgradTile:
    """``vectors`` vectors are summed at once, ``splits`` shares of ``rows`` rows each have ``pitch`` sums."""

    problem: ConvGeometry  # as ``joined`` says
    target: CpuTarget
    vectors: int
    splits: int

    @property
    def rows(self) -> int:
        """Rows of all images."""
        n, _, d, h, _ = self.problem.y.shape
        return n * d * h

    @property
    def pitch(self) -> int:
        """Sums of one split, with room for whole vectors of any target."""
        return -(-self.problem.k // 16) * 16


def bgrad_tile(problem: ConvGeometry, config: Config, target: CpuTarget) -> BgradTile:
    return BgradTile(_joined(problem), target, config["vectors"], config["split_n"])


def in_rows(view: TensorView) -> bool:
    """Whether the pixels of each row are contiguous."""
    return view.vector == 1 and (view.strides[4] == 1 or view.shape[4] == 1)


def _joined(problem: ConvGeometry) -> ConvGeometry:
    """The problem with short contiguous rows of one channel joined to a long one."""
    view = problem.y
    n, k, d, h, w = view.shape
    dense = view.strides[2:] == (h * w, w, 1) or (d == 1 and (h == 1 or view.strides[3] == w))
    if view.channels_last or not in_rows(view) or not dense or (n == 1 and h * w > _JOINED):
        return problem
    return replace(problem, y=replace(view, shape=(n, k, 1, 1, d * h * w), strides=(*view.strides[:2], 0, 0, 1)))
