"""Writes out the operators that were kept whole for the chains and are in none, but for pixel shuffles on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import make_fx

from tilesmith.torch_ops.compile.chains import KEPT
from tilesmith.torch_ops.compile.nodes import args_of, fake_mode_of, is_static, value

# NOTE: written out, a pixel shuffle of channels-last tensors is a loop over channels that stores far apart, which takes
# several times as long as PyTorch's own kernel (``super_resolution`` of benchmarks/models).
_SHUFFLE = torch.ops.aten.pixel_shuffle.default


class _Table(dict[Any, Callable[..., Any]]):
    """A table that Inductor's caches can name. Its entries cannot be pickled; they follow from PyTorch's version."""

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced_decompositions, ()


def reduced_decompositions() -> dict[Any, Callable[..., Any]]:
    """Inductor's table without the operators that ``write_out`` looks for."""
    from torch._inductor.decomposition import select_decomp_table

    return _Table({target: rule for target, rule in select_decomp_table().items() if target not in (*KEPT, _SHUFFLE)})


def write_out(graph: Graph) -> None:
    """Replace each kept operator by what Inductor's table makes of it; a shuffle stays that is faster so."""
    from torch._inductor.decomposition import select_decomp_table

    left = [
        node
        for node in graph.nodes
        if node.op == "call_function" and (node.target in KEPT or (node.target is _SHUFFLE and not _stays(node)))
    ]
    if not left:
        return
    table, mode = select_decomp_table(), fake_mode_of(graph)
    for node in left:
        operands = list(args_of(node))
        tensors = [index for index, each in enumerate(operands) if isinstance(each, Node)]

        def call(*given: Any, node: Any = node, operands: Any = operands, tensors: Any = tensors) -> Any:
            whole = list(operands)
            for index, each in zip(tensors, given, strict=True):
                whole[index] = each
            return node.target(*whole, **node.kwargs)

        with mode, torch.fx.traceback.preserve_node_meta(False):
            traced = make_fx(call, decomposition_table=table)(*[operands[index].meta["val"] for index in tensors])
        known = dict(
            zip(traced.graph.find_nodes(op="placeholder"), (operands[index] for index in tensors), strict=True)
        )
        meta = {name: each for name, each in node.meta.items() if name not in ("val", "tensor_meta")}
        with graph.inserting_before(node):
            for inner in traced.graph.nodes:
                if inner.op in ("placeholder", "output"):
                    continue
                copied = known[inner] = graph.node_copy(inner, known.__getitem__)
                copied.meta = {**meta, "val": inner.meta["val"]}
        (result,) = args_of(traced.graph.output_node())
        if isinstance(result, Node):
            node.replace_all_uses_with(known[result])
        else:
            for user in list(node.users):  # getitem
                user.replace_all_uses_with(known[result[args_of(user)[1]]])
                graph.erase_node(user)
        graph.erase_node(node)


def _stays(shuffle: Node) -> bool:
    """Whether it is one of channels-last tensors on a CPU."""
    x = value(args_of(shuffle)[0])
    lies_so = x.dim() == 4 and is_static(shuffle) and x.is_contiguous(memory_format=torch.channels_last)
    return bool(x.device.type == "cpu" and lies_so)
