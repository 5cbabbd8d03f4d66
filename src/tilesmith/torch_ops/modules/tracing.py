"""The graph of a model's ``forward``, by ``torch.fx``, refused where the graph would not do what ``forward`` does."""

from __future__ import annotations

import gc
import inspect
import random
import weakref
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import fx, nn

from tilesmith.torch_ops.modules.held import Held
from tilesmith.torch_ops.modules.layers import ORIGINALS
from tilesmith.torch_ops.modules.proxies import STAND_INS, NotTraced, Proxy, result_of


def has_hooks(module: nn.Module) -> bool:
    """Whether a call of ``module`` runs more than its ``forward``."""
    return any(hooks_of(module))


def hooks_of(module: nn.Module) -> tuple[dict[Any, Any], ...]:
    """The dictionaries of the hooks that a call of ``module`` runs."""
    return module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks


class Tracer(fx.Tracer):
    """Traces into every module but those of PyTorch, those with hooks, and ``leaves``."""

    proxy_buffer_attributes = True

    def __init__(self, leaves: Collection[nn.Module]) -> None:
        super().__init__()
        self._leaves = set(leaves)
        self._state = _surroundings()
        self.refused = ""
        self._kinds: dict[fx.Node, Any] = {}
        self._made: list[weakref.ref[Any]] = []

    def proxy(self, node: fx.Node) -> fx.Proxy:
        self._kinds[node] = result_of(node, self._kinds, self.root)
        made = Proxy(node, self)
        self.follow(made)
        return made

    def follow(self, made: Any) -> Any:
        """Note a stand-in, which must not outlive the trace."""
        self._made.append(weakref.ref(made))
        return made

    def kind_of(self, made: Any) -> Any:
        """The class of what it stands for; None where that is not known."""
        return self._kinds.get(made.node) if type(made) is Proxy else None

    def remove_left(self) -> bool:
        """Take what is left of the stand-ins out of the containers that hold them; whether there were some."""
        if not any(each() is not None for each in self._made):
            return False
        gc.collect()  # cycles, such as those of exceptions that were caught, are not kept by anything
        left = [found for each in self._made if (found := each()) is not None]
        for held in (holder for found in left for holder in gc.get_referrers(found) if holder is not left):
            if isinstance(held, dict):
                for key in [key for key, value in held.items() if type(value) in STAND_INS]:
                    del held[key]
            elif isinstance(held, list | set):
                kept = [each for each in held if type(each) not in STAND_INS]
                held.clear()
                held.extend(kept) if isinstance(held, list) else held.update(kept)
        return bool(left)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return m in self._leaves or is_leaf(m)

    def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> Any:
        signature = inspect.signature(root_fn)
        names = required_arguments(root_fn)
        return root_fn, [self.root, *(self._proxy_placeholder(name, None, signature, root_fn) for name in names)]

    def create_arg(self, a: Any) -> Any:
        if type(a) in STAND_INS:  # they say that they are tensors
            return a.node
        if isinstance(a, dict) and type(a) is not dict and not isinstance(a, fx.immutable_collections.immutable_dict):
            raise NotTraced(f"it makes a {type(a).__name__}")
        if isinstance(a, torch.Tensor) and not isinstance(a, nn.Parameter) and a not in self.tensor_attrs:
            raise NotTraced("it makes tensors that do not depend on its arguments")
        return super().create_arg(a)

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        if _surroundings() != self._state:
            raise NotTraced("it switches autocast or the recording of gradients")
        return super().create_node(*args, **kwargs)


def is_leaf(module: nn.Module) -> bool:
    """Whether graphs call ``module`` rather than what its ``forward`` does."""
    if isinstance(module, nn.Sequential | nn.ModuleList | nn.ModuleDict):
        return has_hooks(module)
    own = type(module).__module__
    ours = type(module) in ORIGINALS or isinstance(module, torch.jit.ScriptModule)
    return ours or own.startswith(("torch.nn.", "torch.ao.", "torch._dynamo.")) or has_hooks(module)


def required_arguments(forward: Callable[..., Any]) -> list[str]:
    """The names of the arguments that a call must give; the others keep their defaults in a graph."""
    names = []
    for parameter in list(inspect.signature(forward).parameters.values())[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise NotTraced(f"its forward takes *{parameter.name}")
        if parameter.default is parameter.empty:
            if parameter.kind is parameter.KEYWORD_ONLY:
                raise NotTraced(f"its forward needs the keyword {parameter.name}")
            names.append(parameter.name)
    return names


def traced(module: nn.Module, leaves: Collection[nn.Module]) -> fx.Graph:
    """The graph of ``module``, which is in evaluation. Raises ``NotTraced``; what ``forward`` changed is put back."""
    tracer = Tracer(leaves)
    tracer.traced_func_name = "_own_forward"
    held, dice = Held(module.modules()), (random.getstate(), torch.random.get_rng_state())
    graph, why = _graph(tracer, module)
    if held.restore():
        why = why or "its forward changes what it holds"
    if tracer.remove_left():
        why = why or "its forward keeps what it computes"
    if dice[0] != random.getstate() or not torch.equal(dice[1], torch.random.get_rng_state()):
        random.setstate(dice[0])
        torch.random.set_rng_state(dice[1])
        why = why or "it draws random numbers"
    if why or graph is None:
        raise NotTraced(why)
    for node in graph.nodes:
        node.type = None
    return graph


def _graph(tracer: Tracer, module: nn.Module) -> tuple[fx.Graph | None, str]:
    """The graph, and why it may not run."""
    try:
        with torch.no_grad():
            tracer._state = _surroundings()
            return tracer.trace(module), tracer.refused
    except NotTraced as error:
        return None, str(error)
    except Exception as error:  # what a program does with its proxies may raise anything
        first = str(error).strip().partition("\n")[0]
        return None, tracer.refused or f"torch.fx cannot trace it ({type(error).__name__}: {first[:100]})"


def _surroundings() -> tuple[bool, ...]:
    return (
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"),
        torch.is_autocast_enabled("cuda"),
    )  # fmt: skip
