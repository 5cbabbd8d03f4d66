"""Layout names: the order in which a tensor's axes lie in memory, outermost first.

A layout is a permutation of ``NCW``, ``NCHW`` or ``NCDHW``. For a filter ``N`` is the output-channel axis and ``C`` the
channels of one group. A vector layout splits the channels: ``NCHWc4`` is ``[N, C/4, H, W, 4]``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from tilesmith.errors import ProblemError

_SPATIAL = {1: "W", 2: "HW", 3: "DHW"}
_NAME = re.compile(r"([NCDHW]+)(?:c([1-9][0-9]{0,9}))?")
VECTOR_WIDTHS = (1, 4, 8, 16, 32)


@dataclass(frozen=True)
class Layout:
    """An axis order such as ``NHWC``, with a channel vector width (1: none)."""

    order: str
    vector: int = 1

    @property
    def spatial_dims(self) -> int:
        return len(self.order) - 2

    @property
    def rank(self) -> int:
        """Axes of a tensor in this layout, the vector axis counted."""
        return len(self.order) + (self.vector > 1)

    def __str__(self) -> str:
        return self.order + (f"c{self.vector}" if self.vector > 1 else "")

    def logical_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """``(N, C, *spatial)`` of a tensor whose shape in this layout is ``shape``."""
        sizes = dict(zip(self.order, shape, strict=False))
        sizes["C"] *= self.vector
        return tuple(sizes[a] for a in "NC" + _SPATIAL[self.spatial_dims])

    def layout_shape(self, logical: tuple[int, ...]) -> tuple[int, ...]:
        """The shape in this layout of a tensor with logical shape ``(N, C, *spatial)``."""
        sizes = dict(zip("NC" + _SPATIAL[self.spatial_dims], logical, strict=True))
        if sizes["C"] % self.vector:
            raise ProblemError(f"layout {self}: {sizes['C']} channels do not divide by the vector width {self.vector}")
        sizes["C"] //= self.vector
        return tuple(sizes[a] for a in self.order) + ((self.vector,) if self.vector > 1 else ())

    def logical_strides(self, strides: tuple[int, ...]) -> tuple[int, ...]:
        """Strides of ``(N, C, *spatial)``; the channel stride of a vector layout is that of a whole vector."""
        steps = dict(zip(self.order, strides, strict=False))
        return tuple(steps[a] for a in "NC" + _SPATIAL[self.spatial_dims])


def parse_layout(name: str, spatial_dims: int | None = None) -> Layout:
    """The layout called ``name`` (any case but for the vector suffix); checked against ``spatial_dims`` when given."""
    if not isinstance(name, str):
        raise _no_layout(name)
    return _parsed(name, spatial_dims)


@lru_cache(maxsize=256)
def _parsed(name: str, spatial_dims: int | None) -> Layout:
    """Kept, since each call for a problem asks for its layouts several times."""
    match = _NAME.fullmatch(_upper_order(name))
    if match is not None and sorted(match[1]) == sorted("NCH"):  # some call the only spatial axis H
        return parse_layout(name.replace("H", "W").replace("h", "w"), spatial_dims)
    if match is None or sorted(match[1]) not in [sorted("NC" + s) for s in _SPATIAL.values()]:
        raise _no_layout(name)
    layout = Layout(match[1], int(match[2] or 1))
    if layout.vector not in VECTOR_WIDTHS:
        raise ProblemError(f"layout {name!r}: vector width {layout.vector} is not one of {VECTOR_WIDTHS[1:]}")
    if spatial_dims is not None and layout.spatial_dims != spatial_dims:
        raise ProblemError(f"layout {name!r} has {layout.spatial_dims} spatial axes, the problem has {spatial_dims}")
    return layout


def _no_layout(name: object) -> ProblemError:
    hint = "; type 'NHWC'" if "channels_last" in str(name) else ", such as NHWC"
    return ProblemError(f"layout {name!r} does not exist; a layout is an order of NCW, NCHW or NCDHW{hint}")


def _upper_order(name: str) -> str:
    """``nhwc`` -> ``NHWC``, ``nchwc4`` -> ``NCHWc4``: the last letter before digits is the vector mark."""
    order = name.rstrip("0123456789")
    return name.upper() if order in (name, "") else order[:-1].upper() + order[-1].lower() + name[len(order) :]


def default_layout(spatial_dims: int) -> Layout:
    """Channels first: ``NCW``, ``NCHW`` or ``NCDHW``."""
    return Layout("NC" + _SPATIAL[spatial_dims])


def channels_last(spatial_dims: int) -> Layout:
    """``NWC``, ``NHWC`` or ``NDHWC``."""
    return Layout("N" + _SPATIAL[spatial_dims] + "C")


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Element strides of a dense tensor, last axis contiguous."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)
