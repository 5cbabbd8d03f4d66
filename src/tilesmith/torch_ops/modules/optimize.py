"""``optimize``, ``restore`` and ``report_of``: the layers of a model with our kernels, and back."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import tilesmith.torch_ops  # noqa: F401
from tilesmith.errors import ArgumentError
from tilesmith.torch_ops.modules.decisions import decisions_of
from tilesmith.torch_ops.modules.fused import (
    KEPT,
    Kept,
    RunsGraph,
    original_class,
    refresh_loaded,
    running_graph,
)
from tilesmith.torch_ops.modules.layers import ORIGINALS, REPLACED_CLASSES, replacement_of
from tilesmith.torch_ops.modules.quick import QUICK, Quick
from tilesmith.torch_ops.modules.race import results_of
from tilesmith.torch_ops.modules.report import LayerReport, Report
from tilesmith.torch_ops.modules.tracing import has_hooks, hooks_of

Chosen = Sequence[str | type[nn.Module]]
_ASKED = "_tilesmith_asked"  # the attribute of an optimized model that holds its ``Asked``


@dataclass(frozen=True)
class Asked:
    """The arguments of ``optimize``."""

    only: tuple[str | type[nn.Module], ...] | None
    skip: tuple[str | type[nn.Module], ...]

    def wants(self, name: str, module: nn.Module) -> bool:
        """Whether a module is one of those to be optimized."""
        wanted = self.only is None or _is_one_of(self.only, name, module)
        return wanted and not _is_one_of(self.skip, name, module)


def optimize(model: nn.Module, inplace: bool = False, only: Chosen | None = None, skip: Chosen = ()) -> nn.Module:
    """Have Tilesmith's kernels run the layers of a model.

    The layers ``Conv1d``, ``Conv2d``, ``Conv3d``, ``ConvTranspose1d``, ``ConvTranspose2d``, ``ConvTranspose3d`` and
    ``Linear`` get subclasses of the same names. Parameters, buffers, names, hooks, the training mode and ``state_dict``
    stay. While the whole model is in evaluation and no gradient is recorded, batch norms are folded into filters, and
    biases, sums and activations are computed by the kernel before them; filters are packed once, and again when a
    parameter or buffer has changed. What cannot be replaced stays PyTorch's; ``report_of`` says why.

    Args:
        model: The model, in training or in evaluation. Move it to its device and convert it to channels last first.
        inplace: Change the model itself. Default: a new model that shares parameters and buffers with this one.
        only: Names of modules (a name stands for all modules inside, too) or classes of modules; nothing else is
            replaced or fused. None: the whole model.
        skip: Names or classes that are left alone, even if ``only`` has them.

    Returns:
        The optimized model: the model itself with ``inplace``.

    Raises:
        ArgumentError: ``model`` is no ``torch.nn.Module``, it cannot be copied, or a name of ``only`` or ``skip`` is
            not in it.

    Examples:
        >>> import torch, tilesmith
        >>> model = torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()).eval()
        >>> fast = tilesmith.optimize(model)
        >>> tilesmith.report_of(fast).layers[0].why
        'folded 1, relu'
    """
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"{type(model).__name__} is no torch.nn.Module")
    asked = Asked(None if only is None else _choice("only", only), _choice("skip", skip))
    for argument, entries in (("only", asked.only or ()), ("skip", asked.skip)):
        _check_names(model, argument, entries)
    result = model if inplace else _copied(model)
    restore(result)
    replaced = {
        name: module
        for name, module in result.named_modules()
        if isinstance(module, REPLACED_CLASSES) and asked.wants(name, module) and not _why_not(module)
    }
    for module in replaced.values():
        ours = replacement_of(type(module))
        assert ours is not None  # what has none is not replaced: see ``_why_not``
        module.__class__ = ours
        module.__dict__[QUICK] = Quick()
    setattr(result, _ASKED, asked)
    unfused = frozenset(name for name, module in result.named_modules() if not asked.wants(name, module))
    if replaced:
        _add_graphs(result, "", unfused)
    return result


def restore(model: nn.Module) -> nn.Module:
    """Give a model PyTorch's layers back: the opposite of ``optimize``.

    Args:
        model: A model, optimized or not. It is changed in place; its parameters are not.

    Returns:
        The model itself.

    Raises:
        ArgumentError: ``model`` is no ``torch.nn.Module``.

    Examples:
        >>> import torch, tilesmith
        >>> model = tilesmith.optimize(torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3)))
        >>> type(tilesmith.restore(model)[0]) is torch.nn.Conv2d
        True
    """
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"{type(model).__name__} is no torch.nn.Module")
    for module in model.modules():
        if type(module) in ORIGINALS:
            module.__class__ = ORIGINALS[type(module)]
            module.__dict__.pop(QUICK, None)
        elif isinstance(module, RunsGraph):
            _without_graph(module)
        module.__dict__.pop(_ASKED, None)
    return model


def report_of(model: nn.Module) -> Report:
    """Say which kernels run the layers of an optimized model, and why.

    Args:
        model: A model that ``optimize`` returned, or a copy of one.

    Returns:
        A frozen record with one line for each layer that could be replaced; ``print`` shows it as a table.

    Raises:
        ArgumentError: ``model`` was not optimized.

    Examples:
        >>> import torch, tilesmith
        >>> model = tilesmith.optimize(torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3)), skip=["0"])
        >>> print(tilesmith.report_of(model))
        layer  class   runs     why
        0      Conv2d  PyTorch  left alone by only= or skip=
    """
    asked = getattr(model, "__dict__", {}).get(_ASKED)
    if not isinstance(asked, Asked):
        raise ArgumentError(f"{type(model).__name__} is no model that tilesmith.optimize returned")
    graphs = {name: module.__dict__[KEPT] for name, module in model.named_modules() if isinstance(module, RunsGraph)}
    folded: dict[str, tuple[str, ...]] = {}
    for root, kept in graphs.items():
        inside = dict(model.get_submodule(root).named_modules())
        for layer, said in kept.folded.items():
            folded[_joined(root, layer)] = tuple(_joined(root, each) if each in inside else each for each in said)
    layers = []
    for name, module in model.named_modules():
        if type(module) in ORIGINALS:
            layers.append(_replaced_layer(name, module, folded.get(name)))
        elif isinstance(module, REPLACED_CLASSES):
            late = "it was made or initialized after tilesmith.optimize"
            why = _why_not(module) or (late if asked.wants(name, module) else "left alone by only= or skip=")
            layers.append(LayerReport(name, type(module).__name__, "PyTorch", why))
    said = tuple((name, _graph_in_words(model.get_submodule(name), kept)) for name, kept in graphs.items())
    return Report(tuple(layers), said)


# --- what is replaced -------------------------------------------------------------------------------------------------


def _choice(argument: str, entries: Iterable[Any]) -> tuple[str | type[nn.Module], ...]:
    if isinstance(entries, str | type):
        raise ArgumentError(
            f"{argument} is a list of names and classes, got {entries!r}; type {argument}=[{entries!r}]"
        )
    found = tuple(entries)
    for each in found:
        if not isinstance(each, str) and not (isinstance(each, type) and issubclass(each, nn.Module)):
            raise ArgumentError(f"{argument} takes names and classes of modules, got {each!r}")
    return found


def _check_names(model: nn.Module, argument: str, entries: tuple[Any, ...]) -> None:
    known = {name for name, _ in model.named_modules()}
    for each in entries:
        if isinstance(each, str) and each not in known:
            raise ArgumentError(f"{argument} names {each!r}, which is no module of {type(model).__name__}")


def _is_one_of(entries: tuple[Any, ...], name: str, module: nn.Module) -> bool:
    return any(
        (each in ("", name) or name.startswith(f"{each}.")) if isinstance(each, str)
        else isinstance(module, each)
        for each in entries
    )  # fmt: skip


def _why_not(module: nn.Module) -> str:
    """Why a layer stays PyTorch's; empty if it can be replaced."""
    kind = type(module)
    if kind not in ORIGINALS and (hasattr(module, "parametrizations") or replacement_of(kind) is None):
        parametrized = bool(getattr(module, "parametrizations", None))
        return "its weight is parametrized" if parametrized else f"{kind.__name__} is a subclass with code of its own"
    if "forward" in module.__dict__:
        return "its forward was replaced"
    weight = module._parameters.get("weight")
    if weight is None:
        return "its weight is no parameter, but computed (weight_norm, spectral_norm or pruning)"
    if type(weight) is not nn.Parameter:
        return f"its weight is a {type(weight).__name__}"
    if weight.dtype not in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        return f"its weight is {weight.dtype}"
    return ""


def _replaced_layer(name: str, module: nn.Module, folded: tuple[str, ...] | None) -> LayerReport:
    kind = type(module).__name__
    weight = module._parameters.get("weight")
    if weight is None:
        return LayerReport(name, kind, "tilesmith", "its weight is computed at each call; nothing is folded")
    if type(weight) is not nn.Parameter:
        why = f"its weight is a {type(weight).__name__}; where FSDP gathers plain tensors, Tilesmith runs it unfused"
        return LayerReport(name, kind, "PyTorch", why)
    said = f"folded {', '.join(folded)}" if folded else ""
    results = results_of(module)
    if results:
        won = any(not result.lost for result in results)
        measured = f"measured here: {'; '.join(map(str, results[:3]))}"
        return LayerReport(name, kind, "tilesmith" if won else "PyTorch", f"{said}; {measured}" if said else measured)
    decisions = decisions_of(module)
    if decisions:
        left = [each.reason for each in decisions if not each.ours]
        runs = "PyTorch" if len(left) == len(decisions) else "tilesmith"
        return LayerReport(name, kind, runs, "; ".join(filter(None, (said, *dict.fromkeys(left)))))
    if weight.dtype == torch.float64 and weight.device.type == "cpu":
        why = "kept PyTorch's: fp64 on a CPU, unless ours is measured to be faster at a first call in evaluation"
        return LayerReport(name, kind, "PyTorch", why)
    if isinstance(module, nn.Linear) and weight.device.type == "cpu":
        why = "kept PyTorch's: Linear on a CPU, unless it is measured to be slower at a first call in evaluation"
        return LayerReport(name, kind, "PyTorch", why)
    return LayerReport(name, kind, "tilesmith", said)


def _copied(model: nn.Module) -> nn.Module:
    """A copy of the modules that shares parameters, buffers, the tensors that PyTorch computes of them, and hooks."""
    shared: dict[int, Any] = {}
    modules = set(model.modules())
    for module in modules:
        held = (*module._parameters.values(), *module._buffers.values(), *module.__dict__.values())
        shared |= {id(each): each for each in held if isinstance(each, torch.Tensor)}
        # A copied hook would call a copy of the program's object; hooks of the model's own modules are the copy's.
        hooks = (each for of_kind in hooks_of(module) for each in of_kind.values())
        shared |= {id(each): each for each in hooks if getattr(each, "__self__", None) not in modules}
    try:
        return copy.deepcopy(model, shared)
    except Exception as error:  # the attributes of a model may be anything
        raise ArgumentError(f"{type(model).__name__} cannot be copied ({error}); pass inplace=True") from error


# --- graphs -----------------------------------------------------------------------------------------------------------


def _add_graphs(module: nn.Module, name: str, unfused: frozenset[str]) -> None:
    """Have the largest parts of a model that can be traced run their graphs."""
    if isinstance(module, (RunsGraph, *REPLACED_CLASSES)):
        return
    inner = dict(_inner(module, ""))
    if _take_graph(module, name, unfused, ()):
        # A graph calls what has hooks as a whole, so that can have a graph of its own.
        inner = {each: below for each, below in module.named_modules() if each and has_hooks(below)}
        for child_name, child in inner.items():
            _add_graphs(child, _joined(name, child_name), unfused)
        return
    for child_name, child in inner.items():
        _add_graphs(child, _joined(name, child_name), unfused)
    if inner:
        _take_graph(module, name, unfused, inner)


def _inner(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    """The modules directly below one that have modules of their own; lists of modules only hold modules."""
    for name, child in module.named_children():
        if isinstance(child, nn.ModuleList | nn.ModuleDict):
            yield from _inner(child, f"{prefix}{name}.")
        elif next(child.children(), None) is not None:
            yield f"{prefix}{name}", child


def _take_graph(module: nn.Module, name: str, unfused: frozenset[str], leaves: Iterable[str]) -> bool:
    """Whether the module runs its graph from now on, as soon as it is in evaluation."""
    kind = type(module)
    own = kind.__module__.startswith("torch.") and not isinstance(module, nn.Sequential)
    if own or isinstance(module, torch.fx.GraphModule | torch.jit.ScriptModule) or "forward" in module.__dict__:
        return False
    inside = f"{name}." if name else ""
    below = frozenset(each[len(inside) :] for each in unfused if each.startswith(inside))
    kept = Kept(below, frozenset(leaves))
    modes = [(each, each.training) for each in module.modules()]
    try:
        module.__class__ = running_graph(kind)
    except TypeError:  # its memory is laid out otherwise
        return False
    module.__dict__[KEPT] = kept
    for each, _ in modes:
        each.training = False
    made = kept.build(module)
    for each, mode in modes:
        each.training = mode
    if not made and not kept.folded:
        module.__class__ = kind
        del module.__dict__[KEPT]
        return False
    if any(mode for _, mode in modes):
        kept.program = kept.watch = None
    root: Any = module
    root.register_load_state_dict_post_hook(refresh_loaded)
    return True


def _without_graph(module: Any) -> None:
    module.__class__ = original_class(module)
    del module.__dict__[KEPT]
    hooks = module._load_state_dict_post_hooks
    for key in [key for key, hook in hooks.items() if hook is refresh_loaded]:
        del hooks[key]


def _graph_in_words(module: nn.Module, kept: Kept) -> str:
    if kept.failure:
        return f"runs its own forward: {kept.failure}"
    return f"in evaluation its graph runs, with {len(kept.folded)} layers fused with what follows them"


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix and name else prefix or name
