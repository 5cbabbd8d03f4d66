"""Channels last for the convolutions that are ours: their operands are converted where a graph begins, and what lies
behind them follows.

Inductor does the same for PyTorch's convolutions, which it no longer sees. A result of the graph keeps the strides that
the caller expects.
"""

from __future__ import annotations

import operator
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
        self.changed: set[Node] = set()
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
        if old in self.changed or value(new).stride() != before.stride():
            self.changed.add(new)

    def visit(self, node: Node) -> None:
        """Compute a node's fake tensor anew if an operand lies otherwise than before."""
        if not self.changed or node.op != "call_function" or self.changed.isdisjoint(node.all_input_nodes):
            return
        before, write = node.meta.get("val"), Writer(self.graph, node, self.mode)
        try:
            write.value_again(node)
        except (RuntimeError, ValueError):
            if node.target not in (aten.view.default, aten._unsafe_view.default):
                raise
            node.target = aten.reshape.default  # a view of other strides
            write.value_again(node)
        if _strides(node.meta["val"]) != _strides(before):
            self.changed.add(node)

    def restore_results(self) -> None:
        """Give the graph's results the strides that they had."""
        output = self.graph.output_node()
        for node, strides in zip(_results(self.graph), self._expected, strict=True):
            if strides is None or value(node).stride() == strides:
                continue
            write = Writer(self.graph, output, self.mode)
            like = write.call(aten.clone.default, node, memory_format=torch.contiguous_format, like=node)
            if value(like).stride() != strides:
                form = _FORMATS.get(value(node).dim(), torch.contiguous_format)
                self.graph.erase_node(like)
                like = write.call(aten.clone.default, node, memory_format=form, like=node)
            output.replace_input_with(node, like)


def _behind(node: Node) -> Node:
    """The first place behind a node where a node may stand: behind all placeholders."""
    place = node.next
    while place.op == "placeholder":
        place = place.next
    return place


def _strides(tensors: Any) -> list[Any]:
    several = tensors if isinstance(tensors, tuple | list) else [tensors]
    return [each.stride() if isinstance(each, torch.Tensor) else None for each in several]


def _results(graph: Graph) -> list[Node]:
    """The nodes that the graph returns, each once."""
    return list(graph.output_node().all_input_nodes)
