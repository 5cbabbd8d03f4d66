"""Convolutions with the same result on the same memory: with fewer axes, or with wider pixels."""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.layouts import Layout, dense_strides, parse_layout
from tilesmith.problems.limits import MAX_SIZE
from tilesmith.problems.padding import joined, sides

_LETTERS = {1: "W", 2: "HW", 3: "DHW"}


def flatten_conv(sig: ConvSignature) -> ConvSignature | None:
    """Drop spatial axes of size 1 that a filter of size 1 walks, and fold an unmixed depth into the batch.

    ``sig`` is canonical; a depth is unmixed when the filter has depth 1, stride 1 and no padding. None: nothing to do.
    """
    flat = sig
    while (smaller := _drop_unit_axis(flat) or _fold_depth(flat)) is not None:
        flat = smaller
    return None if flat is sig else flat.canonical


def widen_conv(sig: ConvSignature) -> ConvSignature | None:
    """Merge pixels that lie side by side into one pixel of more channels.

    A stride, a filter and paddings that are multiples of ``f`` pixels never part ``f`` neighbours in a row: they lie as
    the channels of one pixel do, and so do the filter's taps. ``sig`` is canonical. None: there are no such neighbours.
    """
    if sig.mode == "bgrad" or sig.groups != 1 or sig.dilation[-1] != 1:
        return None
    if sig.mode == "bwd" and (sig.epilogue.bias or sig.epilogue.scale == "channel"):
        return None  # a channel's value would be asked for by the channel of a merged pixel
    times = gcd(sig.stride[-1], *sides(sig.padding)[-1], sig.input_logical[-1], sig.kernel_logical[-1])
    if times == 1:
        return None
    changes: dict[str, object] = {}
    for name in ("input", "kernel"):
        shape = getattr(sig, f"{name}_shape")
        strides = getattr(sig, f"{name}_strides") or dense_strides(shape)
        layout = parse_layout(getattr(sig, f"{name}_layout"))
        if not layout.order.endswith("WC") or layout.vector > 1 or strides[-2:] != (shape[-1], 1):
            return None
        *outer, w, c = shape
        if c * times > MAX_SIZE:
            return None
        changes[f"{name}_shape"] = (*outer, w // times, c * times)
        changes[f"{name}_strides"] = (*strides[:-2], strides[-2] * times, 1)
    low, high = sides(sig.padding)[-1]
    changes["padding"] = joined((*sides(sig.padding)[:-1], (low // times, high // times)))
    changes["stride"] = (*sig.stride[:-1], sig.stride[-1] // times)
    wide = replace(sig, **changes).canonical  # type: ignore[arg-type]
    return flatten_conv(wide) or wide


def _drop_unit_axis(sig: ConvSignature) -> ConvSignature | None:
    dims = sig.spatial_dims
    if dims == 1:
        return None
    for i in range(dims):
        if sig.input_logical[2 + i] == 1 and sig.kernel_logical[2 + i] == 1 and sides(sig.padding)[i] == (0, 0):
            return _without(sig, i, dict.fromkeys(("input", "kernel", "output"), 1))
    return None


def _fold_depth(sig: ConvSignature) -> ConvSignature | None:
    untouched = (sig.kernel_logical[2], sig.stride[0], sides(sig.padding)[0]) == (1, 1, (0, 0))
    n, d = sig.input_logical[0], sig.input_logical[2]
    if sig.spatial_dims != 3 or not untouched or n * d > MAX_SIZE:
        return None
    for name in ("input", "output"):
        layout = parse_layout(getattr(sig, f"{name}_layout"))
        if "ND" not in layout.order:
            return None
        strides = getattr(sig, f"{name}_strides") or dense_strides(getattr(sig, f"{name}_shape"))
        at = layout.order.index("N")
        if n > 1 and d > 1 and strides[at] != d * strides[at + 1]:
            return None
    return _without(sig, 0, {"input": d, "kernel": 1, "output": d})


def _without(sig: ConvSignature, axis: int, folded: dict[str, int]) -> ConvSignature:
    """``sig`` without a spatial axis; ``folded[tensor]`` multiplies the batch axis that lies just outside it."""
    dims = sig.spatial_dims
    gone = _LETTERS[dims][axis]
    rename = dict(zip(_LETTERS[dims].replace(gone, ""), _LETTERS[dims - 1], strict=True)) | {"N": "N", "C": "C"}
    changes: dict[str, object] = {}
    for name, times in folded.items():
        layout = parse_layout(getattr(sig, f"{name}_layout"))
        shape = list(getattr(sig, f"{name}_shape"))
        strides = list(getattr(sig, f"{name}_strides") or dense_strides(tuple(shape)))
        at = layout.order.index(gone)
        if times > 1:
            shape[at - 1] *= times
            strides[at - 1] = strides[at]
        del shape[at], strides[at]
        order = "".join(rename[letter] for letter in layout.order if letter != gone)
        changes[f"{name}_layout"] = str(Layout(order, layout.vector))
        changes[f"{name}_strides"] = tuple(strides)
        if name != "output":
            changes[f"{name}_shape"] = tuple(shape)
    changes["padding"] = joined((*sides(sig.padding)[:axis], *sides(sig.padding)[axis + 1 :]))
    for name in ("stride", "dilation", "output_padding"):
        values = getattr(sig, name)
        changes[name] = (*values[:axis], *values[axis + 1 :])
    return replace(sig, **changes)  # type: ignore[arg-type]
