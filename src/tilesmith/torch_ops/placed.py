"""Results that kernels write into their part of a concatenation, where Inductor would copy them.

Inductor's own loops write there (``ConcatKernel``): a result whose layout is still free when the concatenation is
lowered becomes a view of the whole. Ours do the same. A result that something has read as it lies before is copied.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch

_PLACE = "tilesmith_place"
_CAT = torch.ops.aten.cat.default
_NEEDED = (
    "ConcatKernel", "ExternKernelOut", "FallbackKernel", "FixedLayout", "FlexibleLayout", "NonOwningLayout",
    "SliceView", "convert_shape_to_inductor", "get_stride_order",
)  # fmt: skip
_lowered: list[Any] = []  # tables of lowerings that have ours
_log = logging.getLogger("tilesmith.compile")


class Place(NamedTuple):
    """Where in a concatenation a result lies: strides and elements from the first one of the whole."""

    strides: tuple[int, ...]
    offset: int


def allow_place(node: Any, place: Place) -> None:
    """Note that the kernel of this call can write its result there."""
    node.meta[_PLACE] = place


def place_of(node: Any) -> Place | None:
    """The place that is noted."""
    found: Place | None = node.meta.get(_PLACE)
    return found


def lower_placed(operator: Any, name: str, arguments: list[Any], graph: Any, ir: Any) -> Any:
    """A call of the function ``name`` that is given the memory of its result."""
    with graph.fake_mode:
        like, tensors, others, unflatten, _ = ir.FallbackKernel.process_kernel(operator, *arguments)
    sizes = ir.convert_shape_to_inductor(like.shape)
    layout = ir.FlexibleLayout(like.device, like.dtype, sizes, ir.get_stride_order(like.stride()))
    call = ir.ExternKernelOut(layout, tensors, others, python_kernel_name=name)
    call.unflatten_args, call.codegen_args = unflatten, partial(ir.FallbackKernel.codegen_args, call)
    call.tilesmith_place = place_of(graph.current_node)
    return ir.TensorBox.create(call)


def lower_concatenations(lowering: Any) -> bool:
    """Have Inductor's lowering of a concatenation leave room for such results; False where this Inductor cannot."""
    if any(table is lowering.lowerings for table in _lowered):
        return True
    from torch._inductor import ir
    from torch._inductor.virtualized import V

    join: Callable[..., Any] | None = lowering.lowerings.get(_CAT)
    lacking = [name for name in _NEEDED if not hasattr(ir, name)]
    if join is None or lacking:
        _log.info("programs of this PyTorch copy results into concatenations: Inductor has no %s", lacking or _CAT)
        return False

    def lower(parts: list[Any], dim: int = 0) -> Any:
        node, calls = V.graph.current_node, [_free_call(part, ir) for part in parts]
        if any(call is not None for call in calls) and _fit(parts, calls, dim, node):
            return _joined(parts, dim, node.meta["val"], V.graph, ir)
        return join(parts, dim)

    lowering.lowerings[_CAT] = lower
    _lowered.append(lowering.lowerings)
    return True


def _free_call(part: Any, ir: Any) -> Any:
    """The call that gives a part of a concatenation, if it is ours and may write its result elsewhere; else None."""
    stored = isinstance(part, ir.TensorBox) and isinstance(part.data, ir.StorageBox)
    call: Any = part.data.data if stored else None
    return call if hasattr(call, "tilesmith_place") and isinstance(call.layout, ir.FlexibleLayout) else None


def _fit(parts: list[Any], calls: list[Any], dim: int, node: Any) -> bool:
    """Whether a result fits into its place; the layouts of those that do not are made fast."""
    whole: Any = node.meta["val"] if node.target is _CAT else None
    same = whole is not None and all(
        part.get_dtype() == whole.dtype and len(part.get_size()) == whole.dim() for part in parts
    )
    found, begin = False, 0
    for part, call in zip(parts, calls, strict=True):
        if same and call is not None and call.tilesmith_place == Place(whole.stride(), begin * whole.stride(dim)):
            found = True
        elif call is not None:
            call.freeze_layout()
        begin += part.get_size()[dim] if same else 0
    return found


def _joined(parts: list[Any], dim: int, whole: Any, graph: Any, ir: Any) -> Any:
    """As ``ConcatKernel.create``, with the strides that the graph says: those of its free parts say nothing."""
    sizes, strides = map(ir.convert_shape_to_inductor, (whole.shape, whole.stride()))
    kernel = ir.ConcatKernel(name=None, layout=ir.FixedLayout(whole.device, whole.dtype, sizes, strides), inputs=[])
    box, end, inputs = ir.StorageBox(kernel), 0, []
    for part in parts:
        begin, end = end, end + part.get_size()[dim]
        place = ir.SliceView.create(box, dim % whole.dim(), begin, end, clamp=False)
        inputs.append(ir.ConcatKernel.realize_into(part, place))
    kernel.inputs = ir.ConcatKernel.unwrap_storage(inputs)
    kernel.name = graph.register_buffer(kernel)
    graph.register_operation(kernel)
    return ir.TensorBox(box)
