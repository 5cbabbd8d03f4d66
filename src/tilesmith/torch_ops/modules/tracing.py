"""The graph of a model's ``forward``, by ``torch.fx``, refused where the graph would not do what ``forward`` does."""

from __future__ import annotations

import inspect
import operator
import random
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import fx, nn

from tilesmith.torch_ops.modules.layers import ORIGINALS


class NotTraced(Exception):
    """Why there is no graph of a module."""


def has_hooks(module: nn.Module) -> bool:
    """Whether a call of ``module`` runs more than its ``forward``."""
    return any(hooks_of(module))


def hooks_of(module: nn.Module) -> tuple[dict[Any, Any], ...]:
    """The dictionaries of the hooks that a call of ``module`` runs."""
    return module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks


class _Proxy(fx.Proxy):
    """Records ``x += y`` as what it is: ``torch.fx`` records a sum, and the change of ``x`` is lost."""


def _records(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def record(self: Any, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", operation, (self, other), {})

    return record


for _name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "imatmul"):
    setattr(_Proxy, f"__{_name}__", _records(getattr(operator, _name)))


class Tracer(fx.Tracer):
    """Traces into every module but those of PyTorch, those with hooks, and ``leaves``."""

    proxy_buffer_attributes = True

    def __init__(self, leaves: Collection[nn.Module]) -> None:
        super().__init__()
        self._leaves = set(leaves)
        self._state = _surroundings()

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Proxy(node, self)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return m in self._leaves or is_leaf(m)

    def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> Any:
        signature = inspect.signature(root_fn)
        names = required_arguments(root_fn)
        return root_fn, [self.root, *(self._proxy_placeholder(name, None, signature, root_fn) for name in names)]

    def create_arg(self, a: Any) -> Any:
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
    """The graph of ``module``, which is in evaluation. Raises ``NotTraced``."""
    tracer = Tracer(leaves)
    tracer.traced_func_name = "_own_forward"
    modules = list(module.modules())
    before, dice = [_contents(each) for each in modules], (random.getstate(), torch.random.get_rng_state())
    held = [dict(each.__dict__) for each in modules]
    try:
        with torch.no_grad():
            tracer._state = _surroundings()
            graph = tracer.trace(module)
    except NotTraced:
        raise
    except Exception as error:  # what a program does with its proxies may raise anything
        first = str(error).strip().partition("\n")[0]
        raise NotTraced(f"torch.fx cannot trace it ({type(error).__name__}: {first[:100]})") from None
    finally:
        changed = before != [_contents(each) for each in modules]
        if changed:
            for each, attributes in zip(modules, held, strict=True):
                each.__dict__.clear()
                each.__dict__.update(attributes)
        drew = dice[0] != random.getstate() or not torch.equal(dice[1], torch.random.get_rng_state())
        if drew:
            random.setstate(dice[0])
            torch.random.set_rng_state(dice[1])
    if changed:
        raise NotTraced("its forward changes its attributes")
    if drew:
        raise NotTraced("it draws random numbers")
    for node in graph.nodes:
        node.type = None
    return graph


def _surroundings() -> tuple[bool, ...]:
    return (
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"),
        torch.is_autocast_enabled("cuda"),
    )  # fmt: skip


def _contents(module: nn.Module) -> list[Any]:
    """The content of a module as values that change with it: identities, and the sizes of collections."""
    return [(name, id(value), len(value) if isinstance(value, list | dict | set) else 0)
            for name, value in module.__dict__.items()]  # fmt: skip
