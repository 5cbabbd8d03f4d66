"""The library of operators, ``torch.ops.tilesmith``.

It is made of ``define`` and ``impl``, since a call of ``torch.library.custom_op`` costs three times as much host time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

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
    torch.library.register_autograd(full_name, backward, setup_context=setup_context, lib=_library)
