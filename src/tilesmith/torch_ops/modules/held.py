"""The lists, dictionaries, sets and configs that a model's code can reach: compared with earlier, and put back."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections import deque
from collections.abc import Iterable, Iterator
from types import FunctionType, SimpleNamespace
from typing import Any

import torch
from torch import nn

_MOST = 100_000  # containers that are looked for
_KNOWN = sys.stdlib_module_names | {"torch", "numpy", "tilesmith"}
_absent = object()


def containers_of(roots: Iterable[Any]) -> list[Any]:
    """The lists, dictionaries, sets, and attributes of simple objects (configs) among ``roots`` and inside them."""
    found: dict[int, Any] = {}
    todo = list(roots)
    while todo and len(found) < _MOST:
        each = todo.pop()
        if isinstance(each, tuple):
            todo.extend(each)
            continue
        inner = vars(each) if _is_simple(each) else each
        if isinstance(inner, list | dict | set | deque) and id(inner) not in found:
            found[id(inner)] = inner
            todo.extend(inner.values() if isinstance(inner, dict) else inner)
    return list(found.values())


class Held:
    """The contents of what modules hold, and of what the functions of their classes reach by name."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        modules = list(modules)
        roots: list[Any] = [module.__dict__ for module in modules]
        self._globals: dict[tuple[int, str], tuple[dict[str, Any], Any]] = {}
        for kind in dict.fromkeys(base for module in modules for base in type(module).__mro__):
            if kind.__module__.partition(".")[0] in _KNOWN:
                continue
            roots += [each for name, each in vars(kind).items() if not name.startswith("__")]
            for function in (each for each in vars(kind).values() if isinstance(each, FunctionType)):
                roots += _closure(function)
                space = function.__globals__
                for name in function.__code__.co_names:
                    self._globals[id(space), name] = (space, space.get(name, _absent))
        roots += [value for _, value in self._globals.values()]
        self._were = [(each, *_contents(each)) for each in containers_of(roots)]

    def restore(self) -> bool:
        """Put the contents back; whether any was another."""
        changed = False
        for (_, name), (space, value) in self._globals.items():
            if space.get(name, _absent) is not value:
                changed = True
                if value is _absent:
                    del space[name]
                else:
                    space[name] = value
        for each, keys, values in self._were:
            now = _contents(each)
            # By identity: elements need not compare.
            if [*map(id, now[0])] != [*map(id, keys)] or [*map(id, now[1])] != [*map(id, values)]:
                changed = True
                each.clear()
                if isinstance(each, dict):
                    each.update(zip(keys, values, strict=True))
                elif isinstance(each, set):
                    each.update(keys)
                else:
                    each.extend(keys)
        return changed


def _contents(container: Any) -> tuple[list[Any], list[Any]]:
    return list(container), list(container.values()) if isinstance(container, dict) else []


def _closure(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # empty
            continue


def _is_simple(value: Any) -> bool:
    """Whether it is an object of a class of the user's that has attributes, and neither a module nor a tensor."""
    kind = type(value)
    if isinstance(value, nn.Module | torch.Tensor | type | list | dict | set | deque) or not kind.__dictoffset__:
        return False
    return kind in (SimpleNamespace, Namespace) or kind.__module__.partition(".")[0] not in _KNOWN
