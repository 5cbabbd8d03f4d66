"""How a weight gradient is cut up: register tiles over the filter, strips over the pixels, items over both.

The gradient is a product of matrices: ``dw[m][k] = sum over pixels of x[pixel][m] * dy[pixel][k]``. In a strip of ``x``
with its padding, the inputs that one filter row meets lie side by side: ``m`` runs over ``(s, c)`` without gathering.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from tilesmith.problems.geometry import ConvGeometry, TensorView
from tilesmith.solvers.solver import Config, cached_property
from tilesmith.targets.target import CpuTarget

# Strips of a batch, or of a flat run of pixels, past which nothing is gained.
MAX_PIXELS = 8192


@dataclass(frozen=True)
class Line:
    """A run of ``m``: filter depth ``t``, row ``r`` and, where dilation parts the columns, column ``s``."""

    t: int
    r: int
    s: int


@dataclass(frozen=True)
class WrwTile:
    """One config applied to one problem. A strip is ``planes`` x ``rows`` x ``cols`` output pixels.

    ``pairs``: two output rows are multiplied in one step (bf16 dot products).
    ``direct``: operands are read where they are, not copied into strips.
    """

    problem: ConvGeometry  # as ``flattened`` says
    target: CpuTarget
    pairs: bool
    direct: bool
    mr: int
    nv: int
    planes: int
    rows: int
    cols: int
    parts: int
    splits: int

    @cached_property
    def lanes(self) -> int:
        return self.target.lanes(4)

    @property
    def fan_c(self) -> int:
        return self.problem.c // self.problem.groups

    @property
    def fan_k(self) -> int:
        return self.problem.k // self.problem.groups

    @cached_property
    def merged(self) -> bool:
        """Whether one run holds all columns of a filter row."""
        return joins_columns(self.problem)

    @cached_property
    def run(self) -> int:
        return line_length(self.problem)

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        depth, rows, cols = self.problem.filter
        return tuple(
            Line(t, r, s) for t in range(depth) for r in range(rows) for s in range(1 if self.merged else cols)
        )

    @property
    def nr(self) -> int:
        return self.nv * self.lanes

    @cached_property
    def m_blocks(self) -> int:
        return ceil(self.run / self.mr)

    @cached_property
    def k_blocks(self) -> int:
        return ceil(self.fan_k / self.nr)

    @property
    def line_tiles(self) -> int:
        """Tiles of one block of ``k``."""
        return len(self.lines) * self.m_blocks

    @cached_property
    def tiles(self) -> int:
        """Register tiles of one group."""
        return self.line_tiles * self.k_blocks

    @property
    def tile_elements(self) -> int:
        return self.mr * self.nr

    def reach(self, axis: int) -> int:
        """Input positions that the taps of one output span."""
        return (self.problem.filter[axis] - 1) * self.problem.dilation[axis] + 1

    @property
    def strip_height(self) -> int:
        """Input rows of a strip."""
        return (self.rows - 1) * self.problem.stride[1] + self.reach(1)

    @property
    def tail_rows(self) -> int:
        """Rows of a strip for the last output row, which has no partner, where rows go in pairs."""
        return self.problem.filter[1] if self.pairs and (self.problem.output[1] % 2 or self.rows % 2) else 0

    @property
    def x_row(self) -> int:
        """Elements of a row of the packed strip."""
        return ((self.cols - 1) * self.problem.stride[2] + self.reach(2)) * self.fan_c

    @property
    def x_depth(self) -> int:
        return (self.strip_height + self.tail_rows) * self.x_row

    @property
    def x_plane(self) -> int:
        return self.problem.filter[0] * self.x_depth

    @property
    def x_elements(self) -> int:
        """Elements of the whole packed strip."""
        return self.planes * self.x_plane

    @property
    def d_rows(self) -> int:
        return -(-self.rows // 2) if self.pairs else self.rows

    @property
    def d_block(self) -> int:
        """Elements of one packed block of ``k`` of ``dy``."""
        return self.planes * self.d_rows * self.cols * self.nr

    @property
    def packed_blocks(self) -> int:
        """Blocks of ``k`` that one part touches at most."""
        return min(self.k_blocks, ceil(self.tiles / self.parts) // self.line_tiles + 2)

    @property
    def scratch_bytes(self) -> int:
        if self.direct:
            return 0
        return 4 * (self.x_elements + self.packed_blocks * self.d_block) + 128

    @property
    def units_per_plane_group(self) -> int:
        return ceil(self.problem.output[1] / self.rows) * ceil(self.problem.output[2] / self.cols)

    @cached_property
    def units(self) -> int:
        return ceil(self.problem.n * self.problem.output[0] / self.planes) * self.units_per_plane_group

    @property
    def partial_bytes(self) -> int:
        return 4 * self.splits * self.problem.groups * self.tiles * self.tile_elements


def joins_columns(problem: ConvGeometry) -> bool:
    return problem.filter[2] == 1 or problem.dilation[2] == 1


def line_length(problem: ConvGeometry) -> int:
    """Elements of a line."""
    return problem.c // problem.groups * (problem.filter[2] if joins_columns(problem) else 1)


def flattened(problem: ConvGeometry, target: CpuTarget) -> ConvGeometry:
    """A 1x1 problem without stride and padding as one plane of pixels, where both tensors' pixels are evenly spaced."""
    if problem.filter != (1, 1, 1) or problem.is_padded or problem.stride != (1, 1, 1):
        return problem
    step_x, step_y = _pixel_step(problem.x), _pixel_step(problem.y)
    if step_x is None or step_y is None:
        return problem
    pixels = problem.n * problem.input[0] * problem.input[1] * problem.input[2]
    height = 1
    if target.bf16_dot and problem.x.dtype == problem.y.dtype == "bf16":
        # Rows go in pairs: an even number of rows, and rows that are not short.
        heights = [h for h in range(1, min(pixels, 4096) + 1) if pixels % h == 0]
        height = min(heights, key=lambda h: -(-h // 2) * 2 / h * (1 + 3 * h / pixels))
    width = pixels // height

    def plane(view: TensorView, step: int) -> TensorView:
        return replace(view, shape=(1, view.shape[1], 1, height, width), strides=(0, 1, 0, step * width, step))

    size = (1, height, width)
    return replace(problem, n=1, input=size, output=size, x=plane(problem.x, step_x), y=plane(problem.y, step_y))


def _pixel_step(view: TensorView) -> int | None:
    """The distance of neighbouring pixels in elements, if it is one number for the whole tensor."""
    step: int | None = None
    span = 1
    for size, stride in zip(reversed((view.shape[0], *view.shape[2:])), reversed((view.strides[0], *view.strides[2:])),
                            strict=True):  # fmt: skip
        if size == 1:
            continue
        step = stride if step is None else step
        if stride != step * span:
            return None
        span *= size
    return view.shape[1] if step is None else step


def reads_in_place(problem: ConvGeometry) -> bool:
    """Whether ``direct`` is possible but for the tail of ``k``: no padding, fp32, and runs that are runs in memory."""
    one_run = problem.groups == 1 and problem.x.strides[4] == problem.c
    return (
        not problem.is_padded
        and problem.x.dtype == problem.y.dtype == "fp32"
        and (one_run or problem.filter[2] == 1 or not joins_columns(problem))
        and problem.output[0] == 1
    )


def wrw_tile(problem: ConvGeometry, config: Config, target: CpuTarget) -> WrwTile:
    """``config`` applied to ``problem``, which is ``flattened``."""
    value = dict(config.values)
    # Two output rows share a step where they are bf16 and more than one.
    pairs = target.bf16_dot and problem.x.dtype == problem.y.dtype == "bf16" and problem.output[1] > 1
    first = WrwTile(
        problem, target, pairs, bool(value["in_place"]), value["tile_m"], value["vectors"],
        *strip_shape(problem, value["strip_pixels"], pairs), value["split_m"], value["split_n"],
    )  # fmt: skip
    return replace(first, parts=min(first.parts, first.tiles), splits=min(first.splits, first.units))


def strip_shape(problem: ConvGeometry, pixels: int, pairs: bool) -> tuple[int, int, int]:
    """Planes, rows and columns of a strip of about ``pixels`` output pixels."""
    _, height, width = problem.output
    step = 2 if pairs else 1
    cols = ceil(width / ceil(width * step / pixels))
    rows = min(height, max(step, pixels // cols // step * step))
    rows = ceil(height / ceil(height / rows))
    if pairs and rows < height:
        rows += rows % 2
    planes = 1
    if rows == height and cols == width:
        planes = max(1, min(problem.n * problem.output[0], pixels // (rows * cols)))
    return planes, rows, cols
