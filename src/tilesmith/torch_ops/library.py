"""The library of operators, ``torch.ops.tilesmith``.

It is made of ``define`` and ``impl``, since a call of ``torch.library.custom_op`` costs three times as much host time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._library.autograd import Info, make_autograd_impl
from torch.autograd import forward_ad

from tilesmith.errors import ArgumentError

# What both operators that have an epilogue end with.
EPILOGUE = 'str activation="none", float slope=0.01, float low=0.0, float high=6.0, bool frozen=False'
_library: Any = torch.library.Library("tilesmith", "DEF")  # type: ignore[no-untyped-call]


def add_operator(
    name: str, arguments: str, kernel: Callable[..., Any], fake: Callable[..., Any], backward: Callable[..., Any],
    setup_context: Callable[..., None],
) -> None:  # fmt: skip
    """Register one operator: its kernel for CPUs and GPUs, its fake kernel and its gradient."""
    _library.define(f"{name}{arguments}", tags=(torch.Tag.pt2_compliant_tag,))
    for key in ("CPU", "CUDA"):
        _library.impl(name, kernel, key)
    full_name = f"tilesmith::{name}"
    torch.library.register_fake(full_name, fake, lib=_library)
    gradient: Any = make_autograd_impl(getattr(torch.ops.tilesmith, name).default, Info(backward, setup_context))

    def recorded(keyset: Any, *arguments: Any) -> Any:
        if forward_ad._current_level >= 0:
            _refuse_tangents(full_name, arguments)
        return gradient(keyset, *arguments)

    # As torch.library.register_autograd does, which would drop tangents without a word.
    _library.impl(name, recorded, "Autograd", with_keyset=True)


def _refuse_tangents(name: str, arguments: tuple[Any, ...]) -> None:
    unpack: Any = forward_ad.unpack_dual
    for each in arguments:
        if isinstance(each, torch.Tensor) and unpack(each).tangent is not None:
            raise ArgumentError(f"{name} has no forward-mode derivative, and a tensor has a tangent; use backward()")
