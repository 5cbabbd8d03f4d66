"""Checks what PyTorch's libraries compute on a device. ``side`` is ``solvers.external.library``, loaded by who asks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tilesmith.measure.accuracy import Accuracy
from tilesmith.measure.device_bench import DeviceBench
from tilesmith.plan.slots import arguments
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.rewrite import Signature


def call_on_row(call: Callable[..., Any], row: Sequence[Sequence[Any]]) -> Callable[[int], Any]:
    """``call`` on the tensors of a place in a row."""
    return lambda place: call(*row[place])


def check_library(bench: DeviceBench, signature: Signature, side: Any, run: Callable[[int], Any]) -> Accuracy:
    """The numbers of ``run(0)``, a tensor that lies as the canonical ``signature`` says; as those of any plan."""
    slot = arguments(signature)[-1]
    if slot.nbytes == math.prod(slot.shape) * dtype(slot.dtype).nbytes:
        return bench.check_foreign(lambda: side.address_of(run(0)), slot.nbytes)
    return bench.checker.check_result(side.array_of(run(0)))
