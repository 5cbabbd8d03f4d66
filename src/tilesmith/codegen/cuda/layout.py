"""A kernel that copies a tensor from one layout to another: any strides, any channel vectors, sizes at run time.

Elements that are contiguous in both layouts move as one unit of up to 16 bytes (the vectors of ``NCHWc8``). When one
axis of units is contiguous where they are read and another where they are written (``NCHW`` to ``NHWC``), tiles are
transposed through shared memory, with wide loads and stores on both sides; else units are copied one by one.
"""

from __future__ import annotations

from math import prod
from pathlib import Path

from tilesmith.codegen.axes import Axis, common_axes
from tilesmith.codegen.cuda.pad_rows import Rows, pad_rows
from tilesmith.codegen.cuda.unit import template
from tilesmith.codegen.symbols import make_source
from tilesmith.plan.records import Integer, Launch, Parameter, Pointer, Source
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.geometry import TensorView
from tilesmith.targets.target import CudaTarget

_THREADS = 256
_MOST = 16  # bytes of a load
_TILE_BYTES = 8192
_EACH = 4  # units of a thread that copies rows
_MAX_GRID = 2**31 - 1
_MOST_UNITS = 2**32 - 1  # that 32 bits count
_UNIT: Axis = (1, 0, 0)
# Units by their bytes: their type, and (for those below a word) the type of their bits.
_TYPES = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}


def layout_copy(
    source: TensorView, result: TensorView, read: Pointer, write: Pointer, target: CudaTarget
) -> tuple[Source, Launch]:
    """A launch that copies the tensor at ``read``, which lies as ``source`` says, to ``write``, as ``result`` says.

    Nothing between the elements is written, except in a ``result`` that owns its gaps: a transposition fills them with
    zeros, and ``pad_rows``, which copies pixels that follow each other, with what lies behind the pixel. Both pointers
    are multiples of 16 bytes. ``Launch.artifact`` is 0: the caller renumbers. ``ValueError`` if the two views differ in
    shape or dtype, or are too large for one launch.
    """
    if source.shape != result.shape or source.dtype != result.dtype:
        raise ValueError(f"a layout copy keeps shape and dtype, got {source} to {result}")
    axes, unit = _in_units(common_axes(source, result), dtype(source.dtype).nbytes)
    reads, writes = (next((a for a in axes if a[side] == 1), None) for side in (1, 2))
    if reads is None or writes is None or reads is writes:
        if _pads_rows(source, result):
            rows, nbytes = prod(source.shape) // source.shape[1], source.shape[1] * dtype(source.dtype).nbytes
            return pad_rows(Rows(read, write, 1, rows, nbytes, nbytes, 0), None, target)
        return _rows(axes, unit, read, write, target)
    rest = [axis for axis in axes if axis not in (reads, writes)]
    owned = result.owns_gaps and result.channels_last and source.vector == 1
    filled = _pitch_of(result) if owned else writes[0]
    return _tiles(reads, writes, filled, rest, unit, read, write, target)


def _pads_rows(source: TensorView, result: TensorView) -> bool:
    """Whether pixels that follow each other get gaps up to the next 16 bytes, which the copy owns."""
    channels, nbytes = source.shape[1], dtype(source.dtype).nbytes
    if not (result.owns_gaps and source.channels_last and result.channels_last):
        return False
    chunks = -(-channels * nbytes // _MOST)
    return (
        _follow(source, channels)
        and _follow(result, chunks * _MOST // nbytes)
        and prod(source.shape) // channels * chunks < _MAX_GRID
    )


def _pitch_of(view: TensorView) -> int:
    """Elements from pixel to pixel of a tensor that lies as ``NDHWC``."""
    return min(stride for axis, stride in enumerate(view.strides) if axis != 1)


def _follow(view: TensorView, pitch: int) -> bool:
    """Whether the pixels of an ``NDHWC`` tensor follow each other ``pitch`` elements apart."""
    for axis in (4, 3, 2, 0):
        if view.shape[axis] > 1 and view.strides[axis] != pitch:
            return False
        pitch *= view.shape[axis]
    return True


def copied_unit(source: TensorView, result: TensorView) -> int:
    """Bytes that a copy's threads move as one: 16 where tiles are transposed, else what is contiguous on both sides."""
    axes, unit = _in_units(common_axes(source, result), dtype(source.dtype).nbytes)
    reads, writes = (next((axis for axis in axes if axis[side] == 1), None) for side in (1, 2))
    return unit if reads is None or writes is None or reads is writes else _MOST


def _in_units(axes: list[Axis], nbytes: int) -> tuple[list[Axis], int]:
    """The axes with strides in units of as many bytes as move together."""
    both = next((axis for axis in axes if axis[1] == axis[2] == 1), None)
    if both is None:
        return axes, nbytes
    rest = [axis for axis in axes if axis is not both]
    count = _widest(_MOST // nbytes, [both[0], *(stride for axis in rest for stride in axis[1:])])
    rest = [(size, a // count, b // count) for size, a, b in rest]
    return ([*rest, (both[0] // count, 1, 1)] if both[0] > count else rest), nbytes * count


def _widest(most: int, steps: list[int]) -> int:
    while most > 1 and any(step % most for step in steps):
        most //= 2
    return most


def _tiles(
    p: Axis, q: Axis, filled: int, rest: list[Axis], unit: int, read: Pointer, write: Pointer, target: CudaTarget
) -> tuple[Source, Launch]:
    """``filled``: units of a line along ``q`` that are written, zeros behind the last one that there is."""
    each = max(1, 4 // unit)  # units in a word
    reading = _widest(_MOST // unit, [p[0], q[1], *(axis[1] for axis in rest)])
    writing = _widest(_MOST // unit, [filled, p[2], *(axis[2] for axis in rest)])
    tile_p, tile_q = _extents(p[0], filled, unit, reading, max(each, writing))
    tiles = (-(-p[0] // tile_p), -(-filled // tile_q))
    names = {
        "tiles_p": tiles[0], "tiles_q": tiles[1], "size_p": p[0], "size_q": q[0], "filled_q": filled, "from_q": q[1],
        "to_p": p[2],
    }  # fmt: skip
    holes = {
        "UNIT": _TYPES.get(unit, "@SYM@_wide"), "HELD": _TYPES.get(max(4, unit), "@SYM@_wide"),
        "BITS": _TYPES.get(unit, "unsigned int"), "P": tile_p, "Q": tile_q, "READ": reading, "WRITE": writing,
        "PITCH": _pitch(tile_p, tile_q, reading, writing, unit),
    }  # fmt: skip
    shape = f"{tile_p}x{tile_q}x{reading}x{writing}"
    return _made("layout", shape, unit, holes, names, rest, prod(tiles), read, write, target)


def _extents(np: int, nq: int, unit: int, least_p: int, least_q: int) -> tuple[int, int]:
    """Units of a tile: square ones as far as the tensor is, and never fewer than a load or store moves."""
    side = 64 if unit <= 2 else 32 if unit <= 8 else 16
    tile_q = max(least_q, min(side, 1 << (nq - 1).bit_length()))
    tile_p = max(least_p, min(_TILE_BYTES // unit // tile_q, 512, 1 << (np - 1).bit_length()))
    tile_q = max(tile_q, min(_TILE_BYTES // unit // tile_p, 512, 1 << (nq - 1).bit_length()))
    return tile_p, tile_q


def _pitch(tile_p: int, tile_q: int, reading: int, writing: int, unit: int) -> int:
    """Words from line to line of the tile: those that lanes read at once lie in different banks."""
    width = tile_p + (tile_p // reading if reading > 2 else 1)
    words = max(1, writing // max(1, 4 // unit))  # of a store, from as many lines
    apart = max(1, 32 * writing // tile_q // words) if unit <= 4 else 1
    return width + (apart - width) % 8


def _rows(axes: list[Axis], unit: int, read: Pointer, write: Pointer, target: CudaTarget) -> tuple[Source, Launch]:
    ordered = sorted(axes, key=lambda axis: axis[2])
    p, q, *rest = [*ordered, _UNIT, _UNIT]
    rest = [axis for axis in rest if axis[0] > 1]
    chunks = -(-(p[0] * q[0]) // (_THREADS * _EACH))
    names = {
        "chunks": chunks, "size_p": p[0], "from_p": p[1], "to_p": p[2], "size_q": q[0], "from_q": q[1], "to_q": q[2],
    }  # fmt: skip
    part = min(unit, 8)
    wide = chunks * _THREADS * _EACH > _MOST_UNITS
    holes = {
        "BYTES": unit, "PART": _TYPES[part], "PARTS": unit // part, "EACH": _EACH,
        "INDEX": _TYPES[8] if wide else "u32",
    }  # fmt: skip
    shape = "longrows" if wide else "rows"
    return _made("layout_rows", shape, unit, holes, names, rest, chunks, read, write, target)


def _made(
    file: str, shape: str, unit: int, holes: dict[str, object], names: dict[str, int], rest: list[Axis], blocks: int,
    read: Pointer, write: Pointer, target: CudaTarget,
) -> tuple[Source, Launch]:  # fmt: skip
    """``blocks`` of them for each element of the ``rest`` of the axes."""
    steps = []
    for i, axis in enumerate(rest):
        names |= {f"size_{i}": axis[0], f"from_{i}": axis[1], f"to_{i}": axis[2]}
        steps.append(f"  from_at += item % (u32)size_{i} * from_{i}, to_at += item % (u32)size_{i} * to_{i};")
        steps.append(f"  item /= (u32)size_{i};")
    parameters = ["const void *from", "void *to", *(f"long long {name}" for name in names)]
    text = template(Path(__file__).parent, file)
    for hole, value in (holes | {"PARAMETERS": ", ".join(parameters), "OUTER": "\n".join(steps)}).items():
        text = text.replace(f"@{hole}@", str(value))
    made = make_source("cuda", "layout", f"b{8 * unit}", shape, target.arch, "", text)
    grid = blocks * prod(axis[0] for axis in rest)
    if grid > _MAX_GRID:
        raise ValueError(f"a layout copy of {grid} blocks is too large for one launch")
    values: tuple[Parameter, ...] = (read, write, *(Integer(value) for value in names.values()))
    return made, Launch(0, made.symbol, (grid, 1, 1), values, (_THREADS, 1, 1), programmatic=target.has_cluster)
