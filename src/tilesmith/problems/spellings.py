"""Other names of one problem: the orders of axes that tensors with axes of size 1 have at once.

A key names each tensor's layout, so a problem with unit axes has several keys. Keys are stable for ever, and stay what
they are; a problem that is not held under its own key is looked up under these.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.layouts import channels_last, default_layout, dense_strides, parse_layout

Axes = dict[str, tuple[int, int]]  # letter -> size and stride
_TENSORS = ("input", "kernel", "output")


def follows(axes: Axes, order: str) -> bool:
    """Whether the axes that have more than one element lie in this order, the outermost first, without overlaps."""
    inner = 1
    for letter in reversed(order):
        size, stride = axes[letter]
        if size > 1:
            if stride < inner:
                return False
            inner = stride * size
    return True


def own_order(axes: Axes) -> str | None:
    """The letters in the order in which they lie, unit axes in their place among all; None if they overlap."""
    letters = tuple(axes)
    moving = iter(sorted((a for a in letters if axes[a][0] != 1), key=lambda a: -axes[a][1]))
    found = "".join(letter if axes[letter][0] == 1 else next(moving) for letter in letters)
    return found if follows(axes, found) else None


@lru_cache(maxsize=4096)  # a process asks for those of a problem when it decides and when it launches
def other_spellings(signature: ConvSignature | GemmSignature) -> tuple[ConvSignature, ...]:
    """The same problem on the same memory, canonical, under other keys.

    These are: all tensors channels-last; all channels-first; and each by itself, a dense one as its axes came and any
    other by its strides with unit axes in their place, which is how ``conv`` once named arrays.
    """
    if isinstance(signature, GemmSignature) or signature.is_empty:
        return ()
    sig = signature.canonical
    layouts = [parse_layout(getattr(sig, f"{name}_layout")) for name in _TENSORS]
    if any(layout.vector > 1 for layout in layouts):
        return ()
    axes = [_axes(sig, name) for name in _TENSORS]
    default, last = str(default_layout(sig.spatial_dims)), str(channels_last(sig.spatial_dims))
    earlier = [default if follows(each, default) else own_order(each) or default for each in axes]
    result = {"fwd": 0, "bwd": 2}.get(sig.mode, 0)  # the result lay as the operand did
    following = list(earlier)
    following[2 - result] = earlier[result]
    found = []
    for names in dict.fromkeys(map(tuple, ([last] * 3, [default] * 3, earlier, following))):
        if all(follows(each, name) for each, name in zip(axes, names, strict=True)):
            changes = _changes(axes, names)
            if all(getattr(sig, name) == value for name, value in changes.items()):
                continue  # its own
            spelled = replace(sig, **changes).canonical  # type: ignore[arg-type]
            if spelled != sig and spelled not in found:
                found.append(spelled)
    return tuple(found)


def _axes(sig: ConvSignature, name: str) -> Axes:
    """Letters in the order of the default layout, as users give their axes."""
    layout, shape = getattr(sig, f"{name}_layout"), getattr(sig, f"{name}_shape")
    strides = getattr(sig, f"{name}_strides") or dense_strides(shape)
    found = dict(zip(layout, zip(shape, strides, strict=True), strict=True))
    return {letter: found[letter] for letter in str(default_layout(sig.spatial_dims))}


def _changes(axes: list[Axes], names: tuple[str, ...]) -> dict[str, object]:
    """The fields of the signature whose tensors have these layouts."""
    changes: dict[str, object] = {}
    for tensor, each, name in zip(_TENSORS, axes, names, strict=True):
        shape, strides = (tuple(max(1, each[letter][at]) for letter in name) for at in (0, 1))
        changes[f"{tensor}_layout"] = name
        changes[f"{tensor}_strides"] = None if strides == dense_strides(shape) else strides
        if tensor != "output":
            changes[f"{tensor}_shape"] = shape
    return changes
