"""Batch norms whose parameters are inputs of a GPU's graph: all of them are folded by one operator, in one launch."""

from __future__ import annotations

from collections.abc import Callable
from operator import getitem
from typing import Any

import torch
from torch.fx import Graph, Node

from tilesmith.torch_ops.compile import folding  # noqa: F401  (its operators)
from tilesmith.torch_ops.compile.chains import Chain
from tilesmith.torch_ops.compile.nodes import Writer, args_of, prims, value
from tilesmith.torch_ops.compile.norm_kernel import norms_kernel, norms_of

_TYPES = (torch.float32, torch.float16, torch.bfloat16)
_FILTER, _BIAS = torch.ops.tilesmith.folded_filter.default, torch.ops.tilesmith.folded_bias.default


def joins(chain: Chain) -> bool:
    """Whether the chain's batch norm can be folded with those of other layers, before the graph begins."""
    assert chain.norm is not None
    w, bias = args_of(chain.head)[1:3]
    _, gamma, beta, mean, variance, *_ = args_of(chain.norm)
    given = [each for each in (w, bias, gamma, beta, mean, variance) if each is not None]
    return (
        _on_gpu(value(w))
        and value(w).dtype == value(chain.head).dtype
        and (gamma is None) == (beta is None)
        and all(_source(each) is not None and value(each).dtype in _TYPES for each in given)
    )


def _on_gpu(tensor: torch.Tensor) -> bool:
    return tensor.is_cuda


def fold_together(graph: Graph, mode: Any, begin: Callable[[Callable[[], object]], object]) -> None:
    """One operator for all pairs of ``folded_filter`` and ``folded_bias`` whose operands are inputs of the graph.

    ``begin`` is called with what finds or compiles the kernels.
    """
    groups: dict[Any, list[tuple[Node, Node]]] = {}
    found = [[node for node in graph.nodes if node.target is target] for target in (_FILTER, _BIAS)]
    for filter_, bias in zip(*found, strict=True):
        types = [each and value(each).dtype for each in _operands(filter_, bias)]
        groups.setdefault((*types, value(filter_).dtype), []).append((filter_, bias))
    for pairs in groups.values():
        _join(graph, mode, pairs, begin)


def _operands(filter_: Node, bias: Node) -> list[Node | None]:
    """Filter, bias, mean, variance, gamma and beta of a layer, as they are inputs of the graph; None: there is none."""
    w, variance, gamma, _, _ = args_of(filter_)
    b, mean, _, _, beta, *_ = args_of(bias)
    return [each and _source(each) for each in (w, b, mean, variance, gamma, beta)]


def _join(
    graph: Graph, mode: Any, pairs: list[tuple[Node, Node]], begin: Callable[[Callable[[], object]], object]
) -> None:
    """Layers of one kind: their operands have the same types, and all of them have the same ones."""
    operands = [
        [each for each in row if each is not None] for row in zip(*(_operands(*pair) for pair in pairs), strict=True)
    ]
    eps, axes = zip(*(args_of(filter_)[3:5] for filter_, _ in pairs), strict=True)
    first = next(node for node in graph.nodes if node.op not in ("placeholder", "get_attr"))
    write = Writer(graph, first, mode)
    given = *operands, list(eps), list(axes), value(pairs[0][0]).dtype
    joined = write.call(torch.ops.tilesmith.folded_norms.default, *given, like=pairs[0][0])
    olds = [*(each for each, _ in pairs), *(each for _, each in pairs)]
    news = [write.call(getitem, joined, place, like=old) for place, old in enumerate(olds)]
    for old, new in zip(olds, news, strict=True):  # the first of them may be where the new ones stand
        old.replace_all_uses_with(new)
        graph.erase_node(old)
    tensors: Any = torch.fx.map_arg(given, value)
    norms, device = norms_of(*tensors), str(tensors[0][0].device)
    if norms is not None:
        begin(lambda: norms_kernel(norms, device))


def _source(node: Any) -> Node | None:
    """The input of the graph that a node is, but for its type; None for what is computed."""
    if isinstance(node, Node) and node.target is prims.convert_element_type.default:
        node = args_of(node)[0]
    return node if isinstance(node, Node) and node.op in ("placeholder", "get_attr") else None
