"""The origin of a launchable: the facts that a pickle stores, from which the launchable is made again."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tilesmith.dispatch.choice import Choice
from tilesmith.plan.records import Slot
from tilesmith.plan.slots import arguments
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.rewrite import Signature
from tilesmith.runtime.torch_rules import is_tensor
from tilesmith.targets.target import Target

_FILTER = 1  # among a signature's arguments, where there is one


@dataclass(frozen=True)
class Options:
    """The options of a call of ``get_launchable``; None follows the environment."""

    device: str | None = None
    threads: int | None = None
    mode: str | None = None
    cache: str | None = None


@dataclass(frozen=True)
class Origin:
    """The problem, the options, and the kernel that runs: ``solver`` with ``config`` made the plan.

    If PyTorch's own kernel is chosen, ``choice`` names another solver.
    """

    signature: Signature
    target: Target
    choice: Choice
    solver: str
    config: str
    options: Options


def kept_filter(filter_: Any) -> Any:
    """A filter as it is pickled; of a PyTorch tensor only the values."""
    return filter_.detach() if is_tensor(filter_) else filter_


def restored_filter(signature: Signature, filter_: Any) -> Any:
    """A filter that was saved, in memory as the signature says: saving may drop the gaps between its elements."""
    slot = arguments(signature)[_FILTER]
    if is_tensor(filter_):
        if _fits(slot, filter_.stride()):
            return filter_
        copied = filter_.new_empty_strided(slot.shape, slot.strides)
        copied.copy_(filter_)
        return copied
    if not isinstance(filter_, np.ndarray) or _fits(slot, tuple(step // filter_.itemsize for step in filter_.strides)):
        return filter_
    kind = dtype(slot.dtype).numpy()
    plain = np.dtype(f"u{kind.itemsize}")  # NumPy cannot stride over every type of ml_dtypes
    memory = np.zeros(slot.nbytes // kind.itemsize, plain)
    seen = np.lib.stride_tricks.as_strided(memory, slot.shape, [step * kind.itemsize for step in slot.strides])
    seen[...] = np.ascontiguousarray(filter_).view(plain)
    return seen.view(kind)


def _fits(slot: Slot, strides: tuple[int, ...]) -> bool:
    return not prod(slot.shape) or all(
        n == 1 or a == b for n, a, b in zip(slot.shape, slot.strides, strides, strict=True)
    )
