"""What tiled tensor maps load and store, in NumPy."""

from __future__ import annotations

import numpy as np

from tilesmith.plan.records import TensorMap


def _rows(made: TensorMap, corner):
    """For each row of a box its place in the box, its first element, and how many of the row exist."""
    strides = [s // 2 for s in made.strides]
    count = max(0, min(made.box[0], made.dims[0] - corner[0]))
    for place in np.ndindex(*made.box[:0:-1]):
        where = [c + p for c, p in zip(corner[1:], place[::-1], strict=True)]
        if all(0 <= w < size for w, size in zip(where, made.dims[1:], strict=True)):
            yield place, corner[0] + int(np.dot(where, strides)), count


def loaded_box(flat, made: TensorMap, corner):
    """Rows of channels that ``made`` loads at ``corner``, zeros outside of the tensor."""
    found = np.zeros(made.box[::-1])
    for place, begin, count in _rows(made, corner):
        found[place][:count] = flat[begin : begin + count]
    return found.reshape(-1, made.box[0])


def store_box(flat, made: TensorMap, corner, rows):
    """Stores rows of channels at ``corner``; nothing outside of the tensor."""
    values = rows.reshape(made.box[::-1])
    for place, begin, count in _rows(made, corner):
        flat[begin : begin + count] = values[place][:count]
