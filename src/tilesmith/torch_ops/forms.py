"""The options of ``tilesmith.conv`` in the operator's form: numbers as lists, layouts as orders of axes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tilesmith.errors import ArgumentError
from tilesmith.problems.layouts import default_layout, parse_layout
from tilesmith.problems.padding import read_padding

Order = tuple[int, ...] | None


class ConvForm(NamedTuple):
    """A call as the operator takes it.

    Attributes:
        options: What comes behind the residual in the operator's schema.
        batched: False if ``x`` has no batch axis.
        x: The order of x's axes in which it is ``(N, C, *spatial)``; None if it is.
        w: The same of the filter.
        y: The order of the result's axes that the call asks for; None for ``(N, K, *spatial)``.
        z: The inverse, for the residual.
        dense: Whether the result has a layout of its own, instead of x's memory order.
    """

    options: tuple[Any, ...]
    batched: bool = True
    x: Order = None
    w: Order = None
    y: Order = None
    z: Order = None
    dense: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether the tensors are taken as they are."""
        return self[1:] == (True, None, None, None, None, False)


def conv_form(options: tuple[Any, ...], ranks: tuple[int, int] | None, taps: Sequence[int] = ()) -> ConvForm:
    """The form of a call with all of its options in order.

    Args:
        options: From ``stride`` to ``acc_dtype`` in the order of ``tilesmith.conv``, and one more that is not read.
        ranks: Number of axes of x and of w; None if they are not known, as in a symbolic trace.
        taps: The filter's sizes in the caller's order, where the padding is a word.

    Raises:
        ProblemError: The padding or a layout breaks a rule.
        ArgumentError: No operator has this layout, or x's axes must be known and are not.
    """
    (
        stride, padding, dilation, groups, transposed, output_padding, input_layout, kernel_layout, output_layout,
        shared_layout, activation, slope, low, high, threads, mode, acc_dtype, _,
    ) = options  # fmt: skip
    # torch.compile may take a default value for a variable; comparing makes a constant of it.
    stride, dilation, groups = (1 if each == 1 else each for each in (stride, dilation, groups))
    padding, output_padding = (0 if each == 0 else each for each in (padding, output_padding))
    slope, low, high = (0.01 if slope == 0.01 else slope), (0.0 if low == 0 else low), (6.0 if high == 6 else high)
    named = [input_layout or shared_layout, kernel_layout or shared_layout, output_layout or shared_layout]
    dims = next((parse_layout(text).spatial_dims for text in named if text), None)
    if dims is None and ranks is not None:
        dims = ranks[1] - 2
    orders: list[Order] = [None, None, None]
    if dims in (1, 2, 3):
        default = str(default_layout(dims))
        orders = [_order(text, default, dims) for text in named]
        taps = [taps[axis] for axis in (orders[1] or range(dims + 2))[2:]] if taps else (1,) * dims
    end = (activation, slope, low, high, False, acc_dtype, mode, threads)
    shape = (
        _list(stride), _padding(padding, dims, taps, stride, dilation, transposed), _list(dilation), transposed,
        _list(output_padding) if transposed else [0], groups,
    )  # fmt: skip
    z = orders[2]
    y = None if z is None else tuple(z.index(axis) for axis in range(len(z)))
    batched = any(named) or ranks is None or ranks[0] != ranks[1] - 1
    return ConvForm((*shape, *end), batched, orders[0], orders[1], y, z, bool(named[2]))


def _order(text: str, default: str, dims: int) -> Order:
    if not text:
        return None
    layout = parse_layout(text, dims)
    if layout.vector > 1:
        raise ArgumentError(f"layout {text!r} has a vector of channels, which no operator takes; use torch.no_grad()")
    name = str(layout)
    return None if name == default else tuple(name.index(axis) for axis in default)


# torch.compile calls it and takes the answer as a constant.
_order._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]


def _padding(
    value: Any, dims: int | None, taps: Sequence[int], stride: Any, dilation: Any, transposed: bool
) -> list[Any]:  # fmt: skip
    if dims is None or len(taps) != dims:
        if isinstance(value, int):
            return [value]
        raise ArgumentError(f"padding {value!r} needs the axes of x and w, which are unknown here; pass an integer")
    if isinstance(value, int):
        return [value]
    found = read_padding(value, (0,) * dims, taps, _each(stride, dims), _each(dilation, dims), transposed)
    return [side for each in found for side in (each if isinstance(each, tuple) else (each,))]


def _each(value: Any, dims: int) -> tuple[int, ...]:
    found = tuple(_list(value))
    return found * dims if len(found) == 1 else found
