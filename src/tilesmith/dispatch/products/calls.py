"""The common part of ``grouped_gemm`` and ``scaled_gemm``: arguments, rows that a plan reads, calls by layouts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from tilesmith.dispatch.arrays import ArrayLayout
from tilesmith.dispatch.kept_calls import when_forgotten
from tilesmith.dispatch.launchable import get_launchable, when_replaced
from tilesmith.errors import ArgumentError
from tilesmith.problems.gemm import GemmSignature
from tilesmith.runtime.arguments import mixed

_Call = Callable[..., Any]
_LIMIT = 4096
# From the name, shapes, strides, dtypes, devices and options of a call to the function that runs it.
_memo: dict[Hashable, _Call] = {}
when_forgotten(_memo.clear)
when_replaced(_memo.clear)


def remembered(key: Hashable, make: Callable[[], _Call]) -> _Call:
    """The function that runs a call; ``make`` finds it where ``key`` is new."""
    call = _memo.get(key)
    if call is None:
        call = make()
        if len(_memo) >= _LIMIT:
            _memo.clear()
        _memo[key] = call
    return call


def bound_for(signature: GemmSignature, device: str, mode: str | None, threads: int | None) -> _Call:
    """The plan of a problem, as a function of its arguments on ``device``."""
    on_cpu = device == "cpu"
    return get_launchable(
        signature, threads=threads if on_cpu else None, device=None if on_cpu else device, mode=mode, frozen=False
    ).bound


def are_tensors(names: Sequence[str], arrays: Sequence[Any]) -> bool:
    """Whether the arguments are PyTorch's tensors; ``ArgumentError`` if only some are."""
    found = [hasattr(type(each), "__torch_function__") for each in arrays]
    if any(found) and not all(found):
        kinds = [isinstance(each, np.ndarray) for each in arrays]
        other = kinds.index(not kinds[0])
        raise ArgumentError(mixed(names[0], arrays[0], names[other], arrays[other]))
    return any(found)


def check_device(name: str, each: ArrayLayout, a: ArrayLayout) -> None:
    """Raise ``ArgumentError`` unless ``each`` is where ``a`` is."""
    if each.device != a.device:
        raise ArgumentError(f"a is on {a.device}, {name} is on {each.device}: they must be on one device")


def pitch_of(matrix: ArrayLayout) -> int | None:
    """Elements from one stored row to the next; None if the rows must be copied."""
    *_, rows, columns = matrix.shape
    if matrix.strides is None:
        return None if matrix.odd else columns
    *outer, lead, inner = matrix.strides
    plain = (columns <= 1 or inner == 1) and (rows <= 1 or lead >= columns) and all(step >= 0 for step in outer)
    return (lead if rows > 1 else columns) if plain else None
