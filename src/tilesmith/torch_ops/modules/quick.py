"""Repeats a layer's last call as one launch, after checks that the same plan applies.

A call with other tensors, options or settings of PyTorch takes the full path (``computed.py``). So does a call on a
thread that PyTorch watches (a tracer, a profiler), because the plan refuses to run there.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tilesmith.dispatch import kept_calls
from tilesmith.errors import ArgumentError
from tilesmith.runtime._runtime import torch_settings, torch_watches
from tilesmith.torch_ops.arguments import PLAIN_TYPES, ConvArguments, GemmArguments
from tilesmith.torch_ops.recording import recorded_launch, unwatched

Optional = torch.Tensor | None
Run = Callable[[torch.Tensor, torch.Tensor, Optional, Optional], torch.Tensor]
QUICK = "_tilesmith_quick"  # the attribute of a layer that holds its ``Quick``
_C: Any = torch._C
_records: Callable[[], bool] = _C.is_grad_enabled
_is_captured: Callable[[], bool] = getattr(_C, "_cuda_isCurrentStreamCapturing", lambda: False)


@dataclass(frozen=True, slots=True)
class _Held:
    """What ``result`` checks and calls: one immutable record, because another thread may replace it meanwhile."""

    filter: Callable[[], Any]  # a weak reference
    run: Run | None
    recorded: Run | None
    epoch: int
    options: object
    threads: int
    no_bias: bool
    no_residual: bool
    packed: bool
    version: int
    address: int
    like: object


class Quick:
    """How the last call of a layer was run. A copy knows nothing."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held: _Held | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Quick, ()

    def __deepcopy__(self, memo: object) -> Quick:
        return Quick()

    def learn(
        self, run: Run | None, w: torch.Tensor, b: Optional, z: Optional, options: object, *,
        recorded: Run | None = None, packed: bool = False, like: torch.Tensor | None = None, threads: int = 0,
    ) -> None:  # fmt: skip
        """Keep how a call was run.

        Args:
            run: The call where no gradients are recorded, a function of the layer's input, filter, bias and of what is
                added; it raises ``ArgumentError`` for tensors that lie otherwise. None: the call takes the full path.
            options: What of the layer the call depends on.
            recorded: The same call where gradients are recorded.
            packed: Whether ``run`` reads a packed form of the filter.
            like: The input, where ``run`` takes any other one, too.
            threads: PyTorch's threads, where the choice depends on their number; else 0.
        """
        version, address = (w._version, w.data_ptr()) if packed else (0, 0)
        lies = None if like is None else (like.shape, like.stride(), like.dtype)
        self.held = _Held(
            weakref.ref(w), run, recorded, kept_calls.emptied, options, threads, b is None, z is None, packed, version,
            address, lies,
        )  # fmt: skip

    def result(self, x: Any, w: Any, b: Any, z: Any, options: object) -> torch.Tensor | None:
        """The result of the call; None where it must take the full path."""
        held = self.held
        if (
            held is None
            or w is None  # as is what the reference gives of a filter that is gone
            or held.filter() is not w
            or held.options != options
            or held.epoch != kept_calls.emptied
            or type(x) not in PLAIN_TYPES
            or held.no_bias is not (b is None)
            or held.no_residual is not (z is None)
            or torch_settings()
        ):
            return None
        run = held.run
        if _records() and (
            x.requires_grad or w.requires_grad or (b is not None and b.requires_grad)
            or (z is not None and z.requires_grad)
        ):  # fmt: skip
            run = held.recorded
            if torch_watches():
                return None
        if run is None:
            return None
        if held.packed and (
            w._version != held.version or w.data_ptr() != held.address or (x.is_cuda and _is_captured())
        ):
            return None
        if held.threads and held.threads != torch.get_num_threads():
            return None
        if held.like is not None and ((x.shape, x.stride(), x.dtype) != held.like or torch_watches()):
            return None
        try:
            return run(x, w, b, z)
        except ArgumentError:
            return None


def launches(
    arguments: ConvArguments | GemmArguments, w: torch.Tensor, b: Optional, z: Optional
) -> tuple[Run, Run | None, bool] | None:
    """How the plan that has just run is called without, and with, gradients recorded, and whether it has the filter
    packed; None if it does not take the tensors as they are.
    """
    bound, packed = arguments.bound_now(w, b, z)
    if bound is None or (packed and w.is_inference()):
        return None
    run = _with_all(bound, b is None, z is None, packed)
    if z is not None or not arguments.is_linear:
        return run, None, packed
    launch = recorded_launch((lambda x, w, b=None: run(x, w, b, None)) if packed else unwatched(bound), arguments)
    recorded: Run = (lambda x, w, b, z: launch(x, w)) if b is None else (lambda x, w, b, z: launch(x, w, b))
    return run, recorded, packed


def _with_all(bound: Callable[..., torch.Tensor], no_bias: bool, no_residual: bool, packed: bool) -> Run:
    """A plan as a function of all four tensors."""
    if packed:
        if no_residual:
            return (lambda x, w, b, z: bound(x)) if no_bias else (lambda x, w, b, z: bound(x, b))
        return (lambda x, w, b, z: bound(x, z)) if no_bias else (lambda x, w, b, z: bound(x, b, z))
    if no_residual:
        return (lambda x, w, b, z: bound(x, w)) if no_bias else (lambda x, w, b, z: bound(x, w, b))
    return (lambda x, w, b, z: bound(x, w, z)) if no_bias else (lambda x, w, b, z: bound(x, w, b, z))
