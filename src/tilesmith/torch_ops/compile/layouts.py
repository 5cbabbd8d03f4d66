"""Channels last for the convolutions that are ours: their operands are converted where a graph begins, and what lies
behind them follows.

Inductor does the same for PyTorch's convolutions, which it no longer sees. A result of the graph keeps the strides that
the caller expects.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from tilesmith.torch_ops.compile.nodes import Writer, aten, is_static, value

_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
# Operators that say how their operand lies in memory: nothing in front of them may lie otherwise.
_BOUND = (
    aten.as_strided.default, aten.as_strided_.default, aten.as_strided_scatter.default, aten.set_.source_Tensor,
    aten.resize_.default,
)  # fmt: skip


class Layouts:
    """The memory order of a graph's tensors while the graph is rewritten from its first node to its last."""

    def __init__(self, graph: Graph, mode: Any) -> None:
        self.graph, self.mode = graph, mode
        self._before: dict[Node, Any] = {}  # changed nodes, with the strides that they had
        self._again: dict[Node, Node] = {}  # for changed nodes, those that have these strides again
        self._converted: dict[Node, Node] = {}
        self.free = all(
            node.op != "call_function" or node.target is operator.getitem
            or (isinstance(node.target, torch._ops.OpOverload) and node.target not in _BOUND)
            for node in graph.nodes
        )  # fmt: skip
        self._expected = [
            tensor.stride() if isinstance(tensor := value(node), torch.Tensor) and is_static(node) else None
            for node in _results(graph)
        ]

    def lasting(self, *nodes: Node) -> list[Any] | None:
        """The fake tensors of a convolution's operands as channels last; None if all lie so, or nothing may change."""
        tensors = [value(node) for node in nodes]
        form = _FORMATS.get(tensors[0].dim())
        if not self.free or form is None or not is_static(*nodes):
            return None
        if all(tensor.is_contiguous(memory_format=form) for tensor in tensors):
            return None
        with self.mode:
            return [tensor.contiguous(memory_format=form) for tensor in tensors]

    def converted(self, node: Node) -> Node:
        """``node`` as channels last; one copy serves all users."""
        form = _FORMATS[value(node).dim()]
        if value(node).is_contiguous(memory_format=form):
            return node
        if node not in self._converted:
            behind = Writer(self.graph, _behind(node), self.mode)
            self._converted[node] = behind.call(aten.clone.default, node, memory_format=form, like=node)
        return self._converted[node]

    def replaced(self, new: Node, old: Node, before: Any) -> None:
        """Note a node that stands for ``old``, which had the fake tensor ``before``; ``visit`` may have changed it."""
        if old in self._before or value(new).stride() != before.stride():
            self._before[new] = self._before.get(old, before.stride())

    def visit(self, node: Node) -> None:
        """Compute a node's fake tensor anew if an operand lies otherwise than before."""
        if not self._before or node.op != "call_function" or self._before.keys().isdisjoint(node.all_input_nodes):
            return
        before, write = node.meta.get("val"), Writer(self.graph, node, self.mode)
        try:
            write.value_again(node)
        except (RuntimeError, ValueError):
            if node.target in (aten.view.default, aten._unsafe_view.default):
                node.target = aten.reshape.default  # a view of other strides
            else:  # such as a view of two floats as a complex number
                for operand in node.all_input_nodes:
                    node.replace_input_with(operand, self._restored(operand, write))
            write.value_again(node)
        if _strides(node.meta["val"]) != _strides(before):
            self._before[node] = before.stride() if isinstance(before, torch.Tensor) else ()  # several have their own

    def restore_results(self) -> None:
        """Give the graph's results the strides that they had."""
        output = self.graph.output_node()
        for node, strides in zip(_results(self.graph), self._expected, strict=True):
            if strides is not None and value(node).stride() != strides:
                write = Writer(self.graph, output, self.mode)
                self._before.setdefault(node, strides)
                output.replace_input_with(node, self._restored(node, write))

    def _restored(self, node: Node, write: Writer) -> Node:
        """``node`` with the strides that it had; a view of what it is a view of, which has them again."""
        if node not in self._before:
            return node
        if node not in self._again:
            if _is_view(node):
                source, *more = node.args
                assert isinstance(source, Node)
                again = write.call(node.target, self._restored(source, write), *more, like=node, **node.kwargs)
            else:
                again = node
            strides = self._before[node]
            if strides and value(again).stride() != strides:  # no view, or one of a product whose sum lay otherwise
                again = _laid(write, node, strides)
            self._again[node] = again
        return self._again[node]


def _behind(node: Node) -> Node:
    """The first place behind a node where a node may stand: behind all placeholders."""
    place = node.next
    while place.op == "placeholder":
        place = place.next
    return place


def _is_view(node: Node) -> bool:
    if node.target is operator.getitem:
        return isinstance(node.args[0], Node) and _is_view(node.args[0])
    return node.target is aten.reshape.default or (
        isinstance(node.target, torch._ops.OpOverload) and node.target.is_view
    )


def _laid(write: Writer, node: Node, strides: Sequence[int]) -> Node:
    """A copy of ``node`` whose axes have the order of ``strides``, without gaps."""
    rank = len(strides)
    order = sorted(range(rank), key=lambda axis: -strides[axis])
    lasting = [0, *range(2, rank), 1]
    if order in (list(range(rank)), lasting):
        form = torch.contiguous_format if order != lasting else _FORMATS.get(rank, torch.contiguous_format)
        return write.call(aten.clone.default, node, memory_format=form, like=node)
    turned = write.call(aten.permute.default, node, order, like=node)
    copy = write.call(aten.clone.default, turned, memory_format=torch.contiguous_format, like=node)
    return write.call(aten.permute.default, copy, [order.index(axis) for axis in range(rank)], like=node)


def _strides(tensors: Any) -> list[Any]:
    several = tensors if isinstance(tensors, tuple | list) else [tensors]
    return [each.stride() if isinstance(each, torch.Tensor) else None for each in several]


def _results(graph: Graph) -> list[Node]:
    """The nodes that the graph returns, each once."""
    return list(graph.output_node().all_input_nodes)
