"""Models that run their graph in evaluation: a subclass of the model's own class, and what it keeps."""

from __future__ import annotations

import logging
from abc import ABCMeta
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import nn

from tilesmith.torch_ops.modules.chains import chains_of
from tilesmith.torch_ops.modules.program import Program
from tilesmith.torch_ops.modules.proxies import NotTraced
from tilesmith.torch_ops.modules.tensors import PLAIN, exports_to_onnx, is_watched, records_gradients
from tilesmith.torch_ops.modules.tracing import required_arguments, traced
from tilesmith.torch_ops.modules.watch import Watch, every_module_has_hooks

KEPT = "_tilesmith_graph"  # the attribute of a model that holds its ``Kept``
_MOST_REBUILDS = 8
_TENSORS = tuple(kind for kind in PLAIN if kind is not nn.Parameter)
_log = logging.getLogger("tilesmith.dispatch")


class Kept:
    """State of a model with a graph: the modules that may be fused, and the program while it is valid.

    A copy, or a saved model, traces again.
    """

    def __init__(self, unfused: frozenset[str], leaves: frozenset[str]) -> None:
        self.unfused, self.leaves = unfused, leaves
        self.names: tuple[str, ...] = ()
        self.program: Program | None = None
        self.watch: Watch | None = None
        self.folded: dict[str, tuple[str, ...]] = {}  # layer -> what follows it in its kernel
        self.failure = ""
        self._rebuilds = 0
        self._traced: list[Any] = []  # the graph as values that compare

    def __reduce__(self) -> tuple[Any, ...]:
        return Kept, (self.unfused, self.leaves)

    def __deepcopy__(self, memo: object) -> Kept:
        return Kept(self.unfused, self.leaves)

    def build(self, root: Any) -> bool:
        """Trace the model and make its program; False if there is none, or nothing to fuse."""
        self.program, self.watch, self.folded = None, None, {}
        try:
            self.names = tuple(required_arguments(type(root)._own_forward))
            below = [root.get_submodule(name) for name in self.leaves]
            graph = traced(root, below)
            self._traced = _compared(graph)
        except (NotTraced, AttributeError) as error:
            self.failure = str(error)
            return False
        chains = chains_of(graph, root, lambda name: name not in self.unfused)
        if not chains:
            self.failure = "nothing follows a layer that its kernel could compute"
            return False
        self.folded = {chain.layer: chain.folded for chain in chains if chain.folded}
        self.program = Program(root, graph, chains)
        self.failure = ""
        self.watch = Watch(root, below)
        return self.program.refresh()

    def is_still_graph(self, root: Any) -> bool:
        """Whether a new trace finds the same graph: then the program stays, and what compiled it does, too."""
        try:
            return _compared(traced(root, [root.get_submodule(name) for name in self.leaves])) == self._traced
        except (NotTraced, AttributeError):
            return False

    def valid(self, root: Any) -> Program | None:
        """The program, if the model is in evaluation and its graph is what it was; made anew if it is not."""
        if self.watch is None or not self.watch.is_same():
            if self.failure or any(module.training for module in root.modules()):
                return None
            self._rebuilds += 1
            if self._rebuilds > _MOST_REBUILDS:
                self.failure = "its modules change from call to call"
                self.program = self.watch = None
                return None
            if not self.build(root):
                return None
        else:
            self._rebuilds = 0
        assert self.program is not None
        return self.program if self.program.refresh() else None

    def recorded(self) -> Program | None:
        """The program for ``torch.compile`` and ``torch.export``, which guard what they read here."""
        if self.program is None or self.watch is None or not self.watch.is_same_in_words():
            return None
        return self.program


def _compared(graph: torch.fx.Graph) -> list[Any]:
    return [(each.name, each.op, each.target, repr(each.args), repr(each.kwargs)) for each in graph.nodes]


class RunsGraph:
    """A model with a graph: ``forward`` is the graph in evaluation, else the model's own code."""

    _own_forward: Callable[..., Any]
    _tilesmith_graph: Kept | None = None  # of an instance that was made otherwise, such as by a subclass

    def __init_subclass__(cls, **kwargs: Any) -> None:
        # The model's own ``__init_subclass__`` may register classes by name, where this one must not stand.
        if RunsGraph not in cls.__bases__:
            super().__init_subclass__(**kwargs)

    def train(self: Any, mode: bool = True) -> Any:
        super().train(mode)  # type: ignore[misc]
        if not mode:
            refresh(self, again=True)
        return self

    def _apply(self: Any, fn: Any, recurse: bool = True) -> Any:
        super()._apply(fn, recurse)  # type: ignore[misc]
        refresh(self)
        return self

    def __setstate__(self: Any, state: Any) -> None:
        super().__setstate__(state)  # type: ignore[misc]
        if not self.training:
            refresh(self)

    def __reduce_ex__(self: Any, protocol: Any) -> tuple[Any, ...]:
        return _made_again, (original_class(self),), self.__getstate__()


def _init_of(base: type[nn.Module]) -> Callable[..., None]:
    """``__init__`` of the class: who calls it, as ``type(self)()`` does, gets a model of the model's own class."""

    @wraps(base.__init__)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        self.__dict__.pop(KEPT, None)
        if type(self) is _classes[base]:
            self.__class__ = base
        base.__init__(self, *args, **kwargs)

    return init


def _forward_of(own: Callable[..., Any]) -> Callable[..., Any]:
    """``forward`` of a model with a graph, with the signature of the model's own one."""

    @wraps(own)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        kept: Kept | None = self._tilesmith_graph
        if kept is None:
            return own(self, *args, **kwargs)
        given = len(args)
        if kwargs and len(kwargs) == len(kept.names) - given and all(name in kwargs for name in kept.names[given:]):
            args, kwargs = (*args, *[kwargs[name] for name in kept.names[given:]]), {}
        if kwargs or len(args) != len(kept.names) or not _as_traced(args):
            return own(self, *args, **kwargs)
        program = _program(self, kept, args)
        return own(self, *args) if program is None else program.forward(self, *args)

    return forward


def _program(root: Any, kept: Kept, args: tuple[Any, ...]) -> Program | None:
    """The program, where nothing asks for what it leaves out: gradients, traces of the modules, autocast."""
    if torch.compiler.is_compiling():
        if exports_to_onnx() or records_gradients(*_tensors(args), *root.parameters()):
            return None
        return kept.recorded()
    if torch.is_grad_enabled() and records_gradients(*_tensors(args), *root.parameters()):
        return None
    if torch._C._is_any_autocast_enabled() or is_watched() or every_module_has_hooks():
        return None
    return kept.valid(root)


def _as_traced(args: tuple[Any, ...]) -> bool:
    """Whether arguments are what they were in the trace, where ``forward`` may have asked: different plain tensors."""
    if not all(type(each) in _TENSORS for each in args):
        return False
    return len(args) < 2 or not any(each is other for place, each in enumerate(args) for other in args[:place])


def _tensors(values: tuple[Any, ...]) -> list[torch.Tensor]:
    return [each for each in values if isinstance(each, torch.Tensor)]


def refresh(root: Any, again: bool = False) -> None:
    """Make the program of a model in evaluation, or fold its filters anew.

    With ``again`` the model is traced in any case: ``forward`` may have read what no watch sees, such as a global.
    """
    kept: Kept | None = root.__dict__.get(KEPT)
    if kept is None or any(module.training for module in root.modules()):
        return
    if kept.watch is None or not kept.watch.is_same() or (again and not kept.is_still_graph(root)):
        if not kept.build(root):
            _log.debug("%s runs its own forward: %s", type(root).__name__, kept.failure)
    elif kept.program is not None:
        kept.program.refresh(anew=True)


def refresh_loaded(root: Any, incompatible_keys: Any) -> None:
    """A hook behind ``load_state_dict``."""
    refresh(root)


_classes: dict[type[nn.Module], type[nn.Module]] = {}


def running_graph(base: type[nn.Module]) -> type[nn.Module]:
    """The subclass of a model's class that runs its graph; it has its name, so that the model prints as before.

    Raises ``TypeError`` if the class cannot have one that nothing else sees.
    """
    made = _classes.get(base)
    if made is None:
        if type(base) not in (type, ABCMeta):  # a metaclass may register the classes that it makes
            raise TypeError(f"the class of {base.__name__} is {type(base).__name__}")
        own = {
            "__init__": _init_of(base),
            "_own_forward": base.forward,
            "forward": _forward_of(base.forward),
            "__module__": base.__module__,
            "__qualname__": base.__qualname__,
        }
        made = _classes[base] = type(base.__name__, (RunsGraph, base), own)
    return made


def original_class(root: nn.Module) -> type[nn.Module]:
    """The class that a model with a graph had."""
    line = type(root).__mro__  # wrappers such as FSDP's stand before our class
    base: type[nn.Module] = line[line.index(RunsGraph) + 1]
    return base


def _made_again(base: type[nn.Module]) -> nn.Module:
    made = running_graph(base)
    return made.__new__(made)
