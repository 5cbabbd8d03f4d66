"""Parameters as constants of a compiled graph, checked at each call.

Dynamo makes parameters constants only if ``torch._inductor.config.freezing`` is set before it traces; then one graph
belongs to one set of parameters. Here a graph is given its parameters as inputs, so other ones may come: those of
another model of the same class, or the same ones after a training step.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from operator import attrgetter, is_
from typing import Any

import torch
from torch.fx import GraphModule

Compile = Callable[[GraphModule, Sequence[Any], bool], Callable[..., Any]]  # the last says whether it is frozen
MOST = 8  # sets of parameters that are frozen for one graph
_log = logging.getLogger("tilesmith.compile")


def freeze_inputs(gm: GraphModule, inputs: Sequence[Any], compile_: Compile) -> Callable[..., Any]:
    """The graph with its parameters as constants; a call with others compiles again."""
    holders = gm.graph.find_nodes(op="placeholder")
    places = [
        place
        for place, (node, each) in enumerate(zip(holders, inputs, strict=True))
        if isinstance(each, torch.Tensor) and _is_parameter(node, each)
    ]
    if not places:
        return compile_(gm, inputs, True)
    return _Frozen(gm, inputs, places, compile_)


def _is_parameter(node: Any, tensor: torch.Tensor) -> bool:
    about = node.meta.get("tensor_dict") or {}
    return "_dynamo_static_input_type" in about or isinstance(tensor, torch.nn.Parameter)


class _Held:
    """A compiled graph and the parameters that are constants of it.

    Each call compares hundreds of tensors, so the loops are C's.
    """

    def __init__(self, parameters: list[torch.Tensor], call: Callable[..., Any]) -> None:
        self.parameters, self.call = parameters, call
        # Tensors of inference mode count no changes; nothing but their address tells of one.
        self._counting = [each for each in parameters if not each.is_inference()]
        self._versions, self._addresses = self._now()

    def holds(self, given: list[torch.Tensor]) -> bool:
        """Whether ``given`` are the parameters, unchanged."""
        return all(map(is_, given, self.parameters)) and self._now() == (self._versions, self._addresses)

    def _now(self) -> tuple[list[int], list[int]]:
        return list(map(_version, self._counting)), list(map(_address, self.parameters))


_version: Callable[[torch.Tensor], int] = attrgetter("_version")
_address = torch.Tensor.data_ptr


class _Frozen:
    """Compiled graphs by the parameters that they hold."""

    def __init__(self, gm: GraphModule, inputs: Sequence[Any], places: list[int], compile_: Compile) -> None:
        self._places = places
        self._others = [place for place in range(len(inputs)) if place not in set(places)]
        self._compile = compile_
        self._whole = _copied(gm)
        self._static = not any(isinstance(each, torch.SymInt) for each in inputs)
        self._plain: Callable[..., Any] | None = None
        self._held = [self._frozen(inputs)]

    def __call__(self, *args: Any) -> Any:
        given = [args[place] for place in self._places]
        for held in self._held:
            if held.holds(given):
                return held.call(*[args[place] for place in self._others])
        return self._with_others(args)

    def _with_others(self, args: Sequence[Any]) -> Any:
        if self._plain is None:
            new = not any(args[self._places[0]] is held.parameters[0] for held in self._held)
            if new and self._static and len(self._held) < MOST:
                self._held.append(self._frozen(args))
                return self(*args)
            _log.warning("parameters changed after they were frozen: this graph is compiled again, with them as inputs")
            self._plain = self._compile(_copied(self._whole), args, False) if self._static else self._whole
        return self._plain(*args)

    def _frozen(self, inputs: Sequence[Any]) -> _Held:
        gm = _copied(self._whole)
        parameters = [inputs[place] for place in self._places]
        holders = gm.graph.find_nodes(op="placeholder")
        for number, place in enumerate(self._places):
            node, name = holders[place], f"_tilesmith_frozen_{number}"
            gm.register_buffer(name, inputs[place])
            with gm.graph.inserting_before(node):
                constant = gm.graph.get_attr(name)
            constant.meta = dict(node.meta)
            node.replace_all_uses_with(constant)
            gm.graph.erase_node(node)
        gm.recompile()
        call = self._compile(gm, [inputs[place] for place in self._others], True)
        return _Held(parameters, call)


def _copied(gm: GraphModule) -> GraphModule:
    """A copy of the graph on the same attributes: compiling changes a graph, and Dynamo reads its own once more."""
    copied = GraphModule(gm, copy.deepcopy(gm.graph))
    copied.meta.pop("dynamo_compile_id", None)  # the nodes of the copy do not say which variables they come from
    return copied
