"""Chains in a graph that one kernel computes: layer, batch norm, addition of a tensor, activation."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import fx, nn

from tilesmith.problems.epilogue import IDENTITY, Epilogue
from tilesmith.torch_ops.modules.finish import activation_of, added_to
from tilesmith.torch_ops.modules.folding import is_foldable
from tilesmith.torch_ops.modules.layers import ORIGINALS
from tilesmith.torch_ops.modules.tracing import has_hooks


@dataclass(frozen=True)
class Chain:
    """Nodes of a graph that one kernel computes, in their order; the first one calls the layer."""

    nodes: tuple[fx.Node, ...]
    layer: str
    norm: str = ""
    added: fx.Node | None = None
    epilogue: Epilogue = IDENTITY  # the activation alone
    folded: tuple[str, ...] = ()  # what follows the layer, in words

    @property
    def last(self) -> fx.Node:
        return self.nodes[-1]


def chains_of(graph: fx.Graph, root: nn.Module, may_fuse: Callable[[str], bool]) -> list[Chain]:
    """The chains of a graph, one for each layer that may be fused; none if no chain is more than its layer.

    Nothing between the nodes of a chain is read elsewhere. ``may_fuse`` says of a module's name whether it may be part
    of one. Of two layers whose results are added, the later one adds.
    """
    search = _Search(graph, root, may_fuse)
    layers = [node for node in graph.nodes if search.layer_of(node) is not None]
    # A node that a chain takes changes nothing in place any more, so the plain chains come first.
    taken = {chain.nodes[0]: chain for chain in (search.plain_chain(node) for node in layers) if chain is not None}
    gone = {node for chain in taken.values() for node in chain.nodes}
    for node in reversed(layers):
        chain = search.with_sum(node, gone)
        if chain is not None:
            taken[node] = chain
            gone |= set(chain.nodes)
    return [taken.get(node) or Chain((node,), str(node.target)) for node in layers] if taken else []


class _Search:
    def __init__(self, graph: fx.Graph, root: nn.Module, may_fuse: Callable[[str], bool]) -> None:
        self._order = {node: place for place, node in enumerate(graph.nodes)}
        self._root, self._may_fuse = root, may_fuse

    def _module(self, node: fx.Node) -> Any:
        """The module that a node calls with one argument, if it may be fused."""
        if node.op != "call_module" or len(node.args) != 1 or node.kwargs:
            return None
        name = str(node.target)
        module = self._root.get_submodule(name)
        return module if self._may_fuse(name) and not has_hooks(module) else None

    def layer_of(self, node: fx.Node) -> Any:
        module = self._module(node)
        return module if type(module) in ORIGINALS else None

    def _next(self, node: fx.Node) -> fx.Node | None:
        """The only reader of a node, which is called with it as its first tensor."""
        users = list(node.users)
        return users[0] if len(users) == 1 and list(users[0].all_input_nodes).count(node) == 1 else None

    def _after_norm(self, node: fx.Node) -> Chain:
        """The layer and its batch norm."""
        name = str(node.target)
        chain, layer, after = Chain((node,), name), self.layer_of(node), self._next(node)
        norm = None if after is None else self._module(after)
        if after is None or norm is None or not is_foldable(layer, norm):
            return chain
        return Chain((node, after), name, str(after.target), folded=(str(after.target),))

    def _activated(self, chain: Chain) -> Chain:
        after = self._next(chain.last)
        if after is None or after.op not in ("call_module", "call_function", "call_method"):
            return chain
        module = self._module(after) if after.op == "call_module" else None
        if (module is None and after.op == "call_module") or not after.args or after.args[0] is not chain.last:
            return chain
        epilogue = activation_of(after, module)
        if epilogue is None:
            return chain
        said = (*chain.folded, epilogue.activation)
        return Chain((*chain.nodes, after), chain.layer, chain.norm, chain.added, epilogue, said)

    def plain_chain(self, node: fx.Node) -> Chain | None:
        chain = self._activated(self._after_norm(node))
        return chain if len(chain.nodes) > 1 else None

    def with_sum(self, node: fx.Node, gone: set[fx.Node]) -> Chain | None:
        """Layer, batch norm, sum, and the activation of the sum."""
        chain = self._after_norm(node)
        after = self._next(chain.last)
        if after is None or after in gone or after.op not in ("call_function", "call_method"):
            return None
        added = added_to(after, chain.last)
        # The layer moves to the place of the sum. What it reads must still be the same there.
        between = [n for n, place in self._order.items() if self._order[node] < place < self._order[after]]
        if added is None or any(n not in gone and n not in chain.nodes and self._may_write(n) for n in between):
            return None
        said = (*chain.folded, f"sum with {added.name}")
        return self._activated(Chain((*chain.nodes, after), chain.layer, chain.norm, added, folded=said))

    def _may_write(self, node: fx.Node) -> bool:
        """Whether a node may change one of its arguments."""
        if node.op == "call_module":
            module = self._root.get_submodule(str(node.target))
            known = type(module).__module__.startswith("torch.nn.modules.") or type(module) in ORIGINALS
            return not known or has_hooks(module) or bool(getattr(module, "inplace", False))
        if node.op == "call_method":
            return str(node.target).endswith("_") or node.target == "__setitem__"
        if node.op == "call_function":
            name = getattr(node.target, "__name__", "_")
            plain = getattr(node.target, "__module__", "") in ("_operator", "torch", "torch.nn.functional", None)
            writes = name.endswith("_") or name in _WRITING or "out" in node.kwargs
            return not plain or writes or node.kwargs.get("inplace") is True or any(each is True for each in node.args)
        return False


_WRITING = frozenset(name for name in dir(operator) if name.startswith("i") and hasattr(operator, f"__{name}__")) - {
    "index", "inv", "invert",
} | {"setitem", "delitem"}  # fmt: skip
