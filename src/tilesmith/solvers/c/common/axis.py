"""One spatial axis of a direct convolution: which inputs meet which filter taps in each output.

Forward and backward data are one form here. A phase is a set of evenly spaced results that meet the same taps:
``fwd`` has one phase an axis, ``bwd`` one for each residue of the stride. Solvers emit the same tile text for both.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.problems.geometry import ConvGeometry


@dataclass(frozen=True)
class Tap:
    """Filter element ``index`` reads the input at ``u * in_step + offset`` for result ``u`` of its phase."""

    index: int
    offset: int


@dataclass(frozen=True)
class AxisPhase:
    """Results ``out_start + u * out_step`` for ``u`` in ``0 .. count - 1``, and the taps that they meet."""

    count: int
    out_start: int
    out_step: int
    in_step: int
    in_size: int
    taps: tuple[Tap, ...]

    def positions(self, width: int) -> tuple[int, ...]:
        """Input positions, relative to ``u0 * in_step``, that ``width`` results from ``u0`` on read."""
        return tuple(sorted({j * self.in_step + tap.offset for j in range(width) for tap in self.taps}))

    @property
    def inner(self) -> tuple[int, int]:
        """The first result that reads no padding, and the first after it that does again."""
        if not self.taps:
            return 0, self.count
        offsets = [tap.offset for tap in self.taps]
        return max(0, -(min(offsets) // self.in_step)), (self.in_size - 1 - max(offsets)) // self.in_step + 1


def axis_phases(problem: ConvGeometry, axis: int) -> tuple[AxisPhase, ...]:
    """The phases of spatial axis ``axis`` (0 to 2): of ``bwd``, or of an output that meets its inputs."""
    size_in, size_out, stride = problem.input[axis], problem.output[axis], problem.stride[axis]
    pad, dilation, taps = problem.padding[axis], problem.dilation[axis], range(problem.filter[axis])
    if problem.direction != "bwd":
        return (AxisPhase(size_out, 0, 1, stride, size_in, tuple(Tap(r, r * dilation - pad) for r in taps)),)
    phases = []
    for start in range(min(stride, size_in)):
        # Gradient element h meets tap r at output (h + pad - r * dilation) / stride, where that is whole.
        met = tuple(
            Tap(r, (start + pad - r * dilation) // stride) for r in taps if (start + pad - r * dilation) % stride == 0
        )
        phases.append(AxisPhase(-(-(size_in - start) // stride), start, stride, 1, size_out, met))
    return tuple(phases)


@dataclass(frozen=True)
class Columns:
    """``repeat`` tiles of ``width`` results from ``start`` on, one function for all. ``inside``: without padding."""

    start: int
    width: int
    repeat: int
    inside: bool


def column_tiles(axis: AxisPhase, width: int, borders_alike: bool = False) -> tuple[Columns, ...]:
    """Cover the axis with tiles; neighbours that read no padding are one repeated tile.

    ``borders_alike``: so are neighbours that do, whose text must ask what lies in the input.
    """
    full, rest = divmod(axis.count, width)
    first_inner, behind_inner = axis.inner
    begin, end = -(-first_inner // width), min(behind_inner // width, full)
    if begin >= end:  # all of them read padding
        begin = end = full
    tiles: list[Columns] = []
    for first, behind, inside in ((0, begin, False), (begin, end, True), (end, full, False)):
        alike = behind - first if inside or borders_alike else 1
        tiles += (Columns(at * width, width, alike, inside) for at in range(first, behind, max(1, alike)))
    if rest:
        inside = first_inner <= full * width and axis.count <= behind_inner
        tiles.append(Columns(full * width, rest, 1, inside))
    return tuple(tiles)


@dataclass(frozen=True)
class Spot:
    """An input position relative to a tile's first, the (result column, filter column) that meet there.

    ``inside``: it lies in the input for at least one of the tiles. ``tested``: for at least one other it does not.
    """

    at: int
    meets: tuple[tuple[int, int], ...]
    inside: bool
    tested: bool = False


def spots(axis: AxisPhase, *columns: Columns) -> tuple[Spot, ...]:
    """Every input position that tiles of ``columns``, which are of one width, read, once."""
    found, width = [], columns[0].width
    starts = [c.start + i * width for c in columns for i in range(1 if c.inside else c.repeat)]
    for p in axis.positions(width):
        meets = ((j, tap.index) for tap in axis.taps for j in range(width) if j * axis.in_step + tap.offset == p)
        inside = {0 <= start * axis.in_step + p < axis.in_size for start in starts}
        found.append(Spot(p, tuple(meets), True in inside, len(inside) > 1))
    return tuple(found)


def zero_row(problem: ConvGeometry) -> int:
    """Elements of the row of zeros that is read above and below the image; 0 where no row leaves it."""
    leaves = any((*problem.padding[:2], *problem.padding_high[:2]))
    return (problem.input[2] - 1) * problem.x.strides[4] + problem.c if leaves else 0
