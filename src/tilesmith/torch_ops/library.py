"""The library of operators, ``torch.ops.tilesmith``.

It is made of ``define`` and ``impl``, since a call of ``torch.library.custom_op`` costs three times as much host time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

# How the operators end: what both that have an epilogue take, and what all three take.
EPILOGUE = 'str activation="none", float slope=0.01, float low=0.0, float high=6.0, bool frozen=False'
SUMS = 'str acc_dtype="", str? mode=None, int? threads=None'
_C: Any = torch._C
_library: Any = torch.library.Library("tilesmith", "DEF")  # type: ignore[no-untyped-call]


def add_operator(
    name: str, arguments: str, kernel: Callable[..., Any], fake: Callable[..., Any], recorded: Callable[..., Any],
    batched: Callable[..., Any],
) -> None:  # fmt: skip
    """Register one operator.

    Args:
        name: Its name in ``torch.ops.tilesmith``.
        arguments: Its schema without the name.
        kernel: The kernel for CPUs and GPUs.
        fake: The kernel for tensors without values.
        recorded: The kernel of the autograd keys. It takes a set of keys before the arguments.
        batched: The rule of ``torch.vmap``, as ``torch.library.register_vmap`` takes it.
    """
    _library.define(f"{name}{arguments}", tags=(torch.Tag.pt2_compliant_tag,))
    for key in ("CPU", "CUDA"):
        _library.impl(name, kernel, key)
    full_name = f"tilesmith::{name}"
    torch.library.register_fake(full_name, fake, lib=_library)
    _library.impl(name, recorded, "Autograd", with_keyset=True)
    torch.library.register_vmap(full_name, batched, lib=_library)


def add_plain(name: str, arguments: str, kernel: Callable[..., Any], fake: Callable[..., Any]) -> None:
    """Register an operator of tensors that need no gradient, made of PyTorch's own."""
    _library.define(f"{name}{arguments}", tags=(torch.Tag.pt2_compliant_tag,))
    _library.impl(name, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"tilesmith::{name}", fake, lib=_library)


def add_autocast(name: str) -> None:
    """Have ``torch.autocast`` convert the operands of an operator, as it does for PyTorch's convolutions."""
    operator = getattr(torch.ops.tilesmith, name).default
    for device, key in (("cpu", torch._C.DispatchKey.AutocastCPU), ("cuda", torch._C.DispatchKey.AutocastCUDA)):
        _library.impl(name, _autocast(operator, device, key), key.name)


def _autocast(operator: Any, device: str, key: Any) -> Callable[..., Any]:
    keys = _C.DispatchKeySet(key)

    def cast(*arguments: Any) -> Any:
        with _C._ExcludeDispatchKeyGuard(keys):
            return operator(*as_autocast(arguments, device))

    return cast


def as_autocast(arguments: Sequence[Any], device: str) -> list[Any]:
    """The arguments, of which tensors on ``device`` have autocast's dtype: those of floating point, but fp64."""
    wanted = torch.get_autocast_dtype(device)
    return [
        each.to(wanted)
        if isinstance(each, torch.Tensor)
        and each.device.type == device
        and each.dtype != wanted
        and each.dtype in _CONVERTED
        else each
        for each in arguments
    ]


_CONVERTED = (torch.float32, torch.float16, torch.bfloat16)
