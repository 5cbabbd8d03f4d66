"""Which results go into a concatenation: their kernels can write them there.

The kernel must be the one that would run otherwise, with the same config: then its stores alone go elsewhere, and a
copy less is a gain. It is another problem all the same, whose result has gaps between its rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch.fx import Graph, Node

from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.rewrite import Signature
from tilesmith.torch_ops.compile.chains import CONVOLUTION, PRODUCTS
from tilesmith.torch_ops.compile.nodes import args_of, aten, is_static, value
from tilesmith.torch_ops.describe import conv_problem, with_result
from tilesmith.torch_ops.placed import Place

CONCATENATION = "concatenation"  # as a report says it
_CAT = aten.cat.default
_ALIGNED = 64  # a vector that straddles two lines is stored slower


def is_inference(graph: Graph) -> bool:
    """Whether no backward pass keeps results: a result in its place keeps the memory of the whole."""
    return not any("tangents" in str(node.target) for node in graph.find_nodes(op="placeholder"))


def goes_into_one(node: Node) -> bool:
    """Whether one concatenation reads a node, and nobody else who needs it without gaps.

    NOTE: on CPUs alone. On a GPU Inductor computes many concatenations inside the loops that read them, and nothing has
    been measured.
    """
    if value(node).device.type != "cpu":
        return False
    cats = [user for user in node.users if user.target is _CAT and user.args]
    return len(cats) == 1 and args_of(cats[0])[0].count(node) == 1 and not any(map(_reads_dense, node.users))


def place_in_concatenation(node: Node) -> Place | None:
    """Where a result lies in its concatenation; None where it should not be written there."""
    if node.target is aten.reshape.default or not goes_into_one(node):  # of a product's rows
        return None
    (cat,) = (user for user in node.users if user.target is _CAT)
    parts, *rest = args_of(cat)
    tensors, whole = [value(each) for each in parts], value(cat)
    if not is_static(cat, *parts) or any((each.dim(), each.dtype) != (whole.dim(), whole.dtype) for each in tensors):
        return None
    dim = (rest[0] if rest else cat.kwargs.get("dim", 0)) % whole.dim()
    begin = sum(each.shape[dim] for each in tensors[: parts.index(node)])
    place = Place(whole.stride(), begin * whole.stride(dim))
    steps = [step for step, size in zip(place.strides, value(node).shape, strict=True) if size > 1 and step != 1]
    return None if any(step * whole.element_size() % _ALIGNED for step in (place.offset, *steps)) else place


def placed_problem(node: Node, problem: Any, place: Place) -> Signature:
    """``problem`` of an operator of ours with the result in its place; ``ProblemError`` where no signature says so."""
    with value(node).fake_mode:
        y = torch.empty_strided(value(node).shape, place.strides, dtype=value(node).dtype, device=value(node).device)
    if not isinstance(problem, ConvSignature):
        return with_result(problem, y)
    x, w, _, _, stride, padding, dilation, transposed, output_padding, groups, *_ = args_of(node)
    found = conv_problem(
        "fwd", value(x), value(w), y, stride=stride, padding=padding, dilation=dilation, transposed=transposed,
        output_padding=output_padding, groups=groups,
    )  # fmt: skip
    return replace(found, epilogue=problem.epilogue)


def _reads_dense(user: Node) -> bool:
    ours = getattr(user.target, "namespace", "") == "tilesmith"
    return ours or user.op == "output" or user.target is CONVOLUTION or user.target in PRODUCTS
