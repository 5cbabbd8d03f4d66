"""The short way of a layer's call: what its last call found out, and how the next one sees that the same holds.

A layer that meets tensors like those of its last call is one launch. All else goes the long way (``layers.py``): other
tensors, options or settings of PyTorch; whatever watches the thread, since the plan refuses to run there.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from tilesmith.dispatch import eager
from tilesmith.errors import ArgumentError
from tilesmith.runtime._runtime import torch_settings, torch_watches
from tilesmith.torch_ops.arguments import PLAIN_TYPES, Arguments
from tilesmith.torch_ops.recording import RecordedLaunch

Optional = torch.Tensor | None
Run = Callable[[torch.Tensor, torch.Tensor, Optional, Optional], torch.Tensor]
QUICK = "_tilesmith_quick"  # the attribute of a layer that holds its ``Quick``
_C: Any = torch._C
_records: Callable[[], bool] = _C.is_grad_enabled
_is_captured: Callable[[], bool] = getattr(_C, "_cuda_isCurrentStreamCapturing", lambda: False)


def _nothing() -> object:
    return _nothing  # which is no filter


class Quick:
    """How the last call of a layer was run. A copy knows nothing.

    Attributes:
        filter: A weak reference to the filter.
        run: The call as a function of the input, filter, bias and residual; it raises ``ArgumentError`` for tensors
            that lie otherwise. None: the call goes the long way.
        recorded: The same where gradients are recorded.
    """

    __slots__ = (
        "_address", "_bias", "_epoch", "_like", "_options", "_packed", "_residual", "_threads", "_version", "filter",
        "recorded", "run",
    )  # fmt: skip

    def __init__(self) -> None:
        self.forget()

    def __reduce__(self) -> tuple[Any, ...]:
        return Quick, ()

    def __deepcopy__(self, memo: object) -> Quick:
        return Quick()

    def forget(self) -> None:
        """Send the next call the long way."""
        self.filter: Callable[[], object] = _nothing
        self.run: Run | None = None
        self.recorded: Run | None = None

    def learn(
        self, run: Run | None, w: torch.Tensor, b: Optional, z: Optional, options: object, *,
        recorded: Run | None = None, packed: bool = False, like: torch.Tensor | None = None, threads: int = 0,
    ) -> None:  # fmt: skip
        """Keep how a call was run.

        Args:
            run: The call where no gradients are recorded; None: it goes the long way.
            options: What of the layer the call depends on.
            recorded: The same call where gradients are recorded.
            packed: Whether ``run`` reads a packed form of the filter.
            like: The input, where ``run`` takes any other one, too.
            threads: PyTorch's threads, where the choice depends on their number; else 0.
        """
        self.filter, self.run, self.recorded = weakref.ref(w), run, recorded
        self._epoch, self._options, self._threads = eager._emptied, options, threads
        self._bias, self._residual = b is None, z is None
        self._packed, self._version, self._address = packed, w._version if packed else 0, w.data_ptr() if packed else 0
        self._like = None if like is None else (like.shape, like.stride(), like.dtype)

    def result(self, x: Any, w: Any, b: Any, z: Any, options: object) -> torch.Tensor | None:
        """The result of the call; None where it must go the long way."""
        if (
            self.filter() is not w
            or self._options != options
            or self._epoch != eager._emptied
            or type(x) not in PLAIN_TYPES
            or self._bias is not (b is None)
            or self._residual is not (z is None)
            or torch_settings()
        ):
            return None
        run = self.run
        if _records() and (
            x.requires_grad or w.requires_grad or (b is not None and b.requires_grad)
            or (z is not None and z.requires_grad)
        ):  # fmt: skip
            run = self.recorded
            if torch_watches():
                return None
        if run is None:
            return None
        if self._packed and (
            w._version != self._version or w.data_ptr() != self._address or (x.is_cuda and _is_captured())
        ):
            return None
        if self._threads and self._threads != torch.get_num_threads():
            return None
        if self._like is not None and ((x.shape, x.stride(), x.dtype) != self._like or torch_watches()):
            return None
        try:
            return run(x, w, b, z)
        except ArgumentError:
            return None


def launches(arguments: Arguments, w: torch.Tensor, b: Optional, z: Optional) -> tuple[Run, Run | None, bool] | None:
    """How the plan that has just run is called without, and with, gradients recorded, and whether it has the filter
    packed; None if it does not take the tensors as they are.
    """
    bound, packed = arguments.bound_now(w, b, z)
    if bound is None or (packed and w.is_inference()):
        return None
    run = _with_all(bound, b is None, z is None, packed)
    if z is not None or not arguments.is_linear:
        return run, None, packed
    launch = (lambda x, w, b=None: run(x, w, b, None)) if packed else bound

    def recorded(x: torch.Tensor, w: torch.Tensor, b: Optional, z: Optional) -> torch.Tensor:
        return RecordedLaunch.apply(launch, arguments, x, w, b, None)  # type: ignore[no-any-return]

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
