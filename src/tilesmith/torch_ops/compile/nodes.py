"""New nodes in a graph of aten operators, with the fake tensors that later passes read."""

from __future__ import annotations

from operator import is_
from typing import Any

import torch
from torch.fx import Graph, Node

aten, prims = torch.ops.aten, torch.ops.prims
_OWN = ("val", "tensor_meta", "eager_input_vals", "original_aten", "from_node")  # of the node itself


def value(node: Any) -> Any:
    """The fake tensor of a node, or the constant itself."""
    return node.meta.get("val") if isinstance(node, Node) else node


def args_of(node: Node) -> Any:
    """The arguments of a node, whose types its operator knows."""
    return node.args


def fake_mode_of(graph: Graph) -> Any:
    """The mode that made the graph's fake tensors; None where it has none."""
    for node in graph.nodes:
        found = node.meta.get("val")
        if isinstance(found, torch._subclasses.FakeTensor):
            return found.fake_mode
    return None


def is_static(*nodes: Any) -> bool:
    """Whether all sizes and strides of these tensors are numbers."""
    return all(
        isinstance(each, int)
        for node in nodes
        if isinstance(tensor := value(node), torch.Tensor)
        for each in (*tensor.shape, *tensor.stride())
    )


def is_noted(node: Node) -> bool:
    """Whether the operands of one of our operators are still those that its fake tensor was computed from."""
    noted = node.meta.get("eager_input_vals")
    if noted is None:
        return False
    args, kwargs = noted
    now = [*map(value, node.args), *map(value, node.kwargs.values())]
    return len(args) == len(node.args) and all(map(is_, now, (*args, *kwargs.values())))


class Writer:
    """Adds nodes before ``place``, each with its fake tensor."""

    def __init__(self, graph: Graph, place: Node, mode: Any) -> None:
        self.graph, self.place, self.mode = graph, place, mode

    def call(self, target: Any, *args: Any, like: Node | None = None, **kwargs: Any) -> Node:
        """A node that calls ``target``; stack trace and source come from ``like``."""
        with self.graph.inserting_before(self.place):
            node = self.graph.call_function(target, args, kwargs)
        # Where it comes from, and what the partitioner reads: is it of the backward pass, is it computed again?
        node.meta = {name: each for name, each in (like or self.place).meta.items() if name not in _OWN}
        self.value_again(node)
        return node

    def value_again(self, node: Node) -> None:
        """Compute the node's fake tensor from those of its arguments."""
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), value)
        target: Any = node.target
        with self.mode:
            node.meta["val"] = target(*args, **kwargs)
        if getattr(target, "namespace", "") == "tilesmith":
            # Inductor hands the operator its operands with exactly these strides.
            node.meta["eager_input_vals"] = (args, kwargs)

    def cast(self, node: Node, dtype: torch.dtype) -> Node:
        return node if value(node).dtype == dtype else self.call(prims.convert_element_type.default, node, dtype)
