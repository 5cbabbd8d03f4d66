"""A problem bound for calling where PyTorch's own kernel is the choice: for its tensors; the plan takes all others."""

from __future__ import annotations

import copyreg
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch

from tilesmith.plan.slots import arguments
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.rewrite import Signature
from tilesmith.solvers.external.library import benchmarking, is_capturing, library_call, uses_tf32
from tilesmith.solvers.external.tensors import TORCH_DTYPES

FILTER = 1


class ExternalBound:
    """Called like the bound plan ``own``, which takes every call that is not for PyTorch.

    Those are tensors of other libraries and other shapes (which ``own`` refuses), calls with ``out=``, and a thread's
    first call if a graph is being recorded: cuDNN tries its plans then, and a graph has no room for trials.
    """

    def __init__(self, signature: Signature, config: str, own: Callable[..., Any]) -> None:
        *inputs, result = arguments(signature)
        if isinstance(signature, GemmSignature) and signature.beta != 0:
            inputs.append(result)
        self._own = own
        self._call = library_call(signature, config)
        self._expected = tuple((torch.Size(s.shape), s.strides, TORCH_DTYPES[s.dtype]) for s in inputs)
        self._tf32 = uses_tf32(signature)
        # Flags decide the numbers of fp32; elsewhere only the first call of a thread needs them.
        self._flagged = result.dtype == "fp32"
        self._met = threading.local()

    def __call__(self, *tensors: Any, out: Any = None) -> Any:
        if out is not None or not self._fits(tensors):
            return self._own(*tensors, out=out)
        met = self._met.__dict__
        index = tensors[0].device.index
        first = index not in met
        if first and is_capturing():
            return self._own(*tensors)
        with benchmarking(self._tf32) if first or self._flagged else nullcontext(), torch.no_grad():
            found = self._call(*tensors)
        met[index] = True
        return found

    def prepare(self, filter_: Any) -> Callable[..., Any]:
        """A callable of the other tensors. Nothing is packed until a call needs the plan."""
        if not isinstance(filter_, torch.Tensor):
            prepared: Callable[..., Any] = self._own.prepare(filter_)  # type: ignore[attr-defined]
            return prepared
        return ExternalPrepared(self, filter_)

    def takes(self, tensors: Sequence[Any]) -> bool:
        """Whether a call with these, without ``out=``, runs PyTorch's kernel now."""
        return self._fits(tensors) and (tensors[0].device.index in self._met.__dict__ or not is_capturing())

    def __reduce__(self) -> Any:
        return copyreg.dispatch_table[type(self._own)](self._own)  # as what made both of them says

    def _fits(self, tensors: Sequence[Any]) -> bool:
        """Whether these are PyTorch's tensors as the signature says, all on one device."""
        if len(tensors) != len(self._expected):
            return False
        for tensor, (shape, strides, dtype) in zip(tensors, self._expected, strict=True):
            if type(tensor) is not torch.Tensor and not isinstance(tensor, torch.nn.Parameter):
                return False
            if tensor.shape != shape or tensor.dtype != dtype or not tensor.is_cuda or tensor.is_neg():
                return False
            found = tensor.stride()
            if found != strides and any(n > 1 and a != b for n, a, b in zip(shape, found, strides, strict=True)):
                return False
            if tensor.device != tensors[0].device:
                return False
        return True


class ExternalPrepared:
    """An ``ExternalBound`` with its filter."""

    def __init__(self, bound: ExternalBound, filter_: torch.Tensor) -> None:
        self._bound, self._filter = bound, filter_
        self._place = min(FILTER, len(bound._expected) - 1)
        self._held: list[Callable[..., Any]] = []
        self._lock = threading.Lock()

    def __call__(self, *others: Any, out: Any = None) -> Any:
        tensors = (*others[: self._place], self._filter, *others[self._place :])
        if out is None and self._bound.takes(tensors):
            return self._bound(*tensors)
        return self._packed()(*others, out=out)

    def _packed(self) -> Callable[..., Any]:
        """The plan's own prepared form, made when a call needs it."""
        with self._lock:
            if not self._held:
                self._held.append(self._bound._own.prepare(self._filter))  # type: ignore[attr-defined]
        return self._held[0]

    def __reduce__(self) -> Any:
        return copyreg.dispatch_table[type(self._packed())](self._packed())
