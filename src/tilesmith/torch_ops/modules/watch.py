"""Whether modules are still what they were when their graph was made."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from torch import nn
from torch.nn.modules import module as globals_of_modules

from tilesmith.torch_ops.modules.held import containers_of
from tilesmith.torch_ops.modules.tracing import hooks_of, is_leaf

_GLOBAL_HOOKS: tuple[dict[Any, Any], ...] = (
    globals_of_modules._global_forward_hooks, globals_of_modules._global_forward_pre_hooks,
    globals_of_modules._global_backward_hooks, globals_of_modules._global_backward_pre_hooks,
)  # fmt: skip
_values = dict.values
_OF_MODULES = frozenset(nn.Module().__dict__)  # compared as children and hooks, or read anew by each call


class Watch:
    """The attributes, what these hold, children and hooks of modules, compared by a few calls of C for all of them."""

    def __init__(self, root: nn.Module, leaves: Collection[nn.Module]) -> None:
        """Of ``root`` and what is below it, without the insides of ``leaves`` and of what graphs call as a whole."""
        whole = set(leaves)
        below = list(dict.fromkeys(_below(root, whole)))
        self.modules = [root, *below]
        # What ``forward`` may have read: the contents of lists, dictionaries, sets and configs.
        traced = [root, *(each for each in below if each not in whole and not is_leaf(each))]
        self._containers = containers_of(
            value for each in traced for name, value in each.__dict__.items() if name not in _OF_MODULES
        )
        held = [each for each in self._containers if isinstance(each, dict)]
        self._attributes = [module.__dict__ for module in self.modules] + held
        self._children: list[Any] = [module._modules for module in self.modules]
        self._hooks = [hooks for module in below for hooks in hooks_of(module)]
        self._had = [*map(bool, self._hooks)]
        self._were = self._now()

    def _now(self) -> tuple[list[Any], ...]:
        """Values of attributes and dictionaries; children; keys of dictionaries, and elements."""
        return (
            [*map(tuple, map(_values, self._attributes))], [*map(tuple, map(_values, self._children))],
            [*map(tuple, self._containers)],
        )  # fmt: skip

    def is_same(self) -> bool:
        """Whether attributes and children are the same, and the same modules have hooks."""
        if [*map(bool, self._hooks)] != self._had:
            return False
        try:
            return self._now() == self._were
        except (RuntimeError, ValueError):  # attributes that do not compare, such as tensors that were replaced
            return False

    def is_same_in_words(self) -> bool:
        """The part that ``torch.compile`` can record as guards: modes and hooks."""
        return not any(module.training for module in self.modules) and [*map(bool, self._hooks)] == self._had


def every_module_has_hooks() -> bool:
    """Whether a hook runs at the call of each module."""
    return any(_GLOBAL_HOOKS)


def _below(module: nn.Module, leaves: set[nn.Module]) -> Iterator[nn.Module]:
    for child in module.children():
        yield child
        if child not in leaves and not is_leaf(child):
            yield from _below(child, leaves)
