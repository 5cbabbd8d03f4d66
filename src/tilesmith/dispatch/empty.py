"""Problems without elements: the result is empty, or each sum is zero and only the epilogue sets the result.

PyTorch's rules: an empty batch has an empty result and gradients of zero, a product over no elements is zero.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tilesmith.errors import ArgumentError
from tilesmith.plan.records import Slot
from tilesmith.plan.slots import arguments
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.samples import pitched_empty
from tilesmith.runtime.arguments import refuse, refuse_mixed
from tilesmith.runtime.device import device
from tilesmith.runtime.device_tensors import check_view, view_of
from tilesmith.runtime.torch_rules import is_tensor, refuse_result, refuse_watched

_FILTER = 1


class EmptyBound:
    """Called like a bound plan. The operands have no elements, so their strides may be anything."""

    def __init__(self, signature: Signature, family: str) -> None:
        self._signature, self._family = signature, family
        *inputs, self._result = arguments(signature)
        if isinstance(signature, GemmSignature) and signature.beta != 0:
            inputs.append(self._result)
        self._inputs = tuple(inputs)

    def __call__(self, *tensors: Any, out: Any = None) -> Any:
        if len(tensors) != len(self._inputs):
            names = ", ".join(slot.name for slot in self._inputs)
            raise ArgumentError(f"takes {len(self._inputs)} tensors ({names}), got {len(tensors)}")
        refuse_watched(tensors)
        for slot, tensor in zip(self._inputs, tensors, strict=True):
            self._check(slot, tensor, writable=False)
            if isinstance(tensor, np.ndarray) != isinstance(tensors[0], np.ndarray):
                refuse_mixed(self._inputs[0], tensors[0], slot, tensor)
        if out is not None:
            self._check(self._result, out, writable=True)
        if is_tensor(out):
            refuse_result(out)
        return self._written(tensors, out)

    def prepare(self, filter_: Any) -> Callable[..., Any]:
        """A callable of the other tensors."""
        if len(self._inputs) <= _FILTER or self._inputs[_FILTER].name not in ("w", "b"):
            raise ArgumentError("this problem has no filter to prepare")
        self._check(self._inputs[_FILTER], filter_, writable=False)
        return EmptyPrepared(self, filter_)

    def _check(self, slot: Slot, tensor: Any, *, writable: bool) -> None:
        if self._family == "cuda":
            view = view_of(slot, tensor)
            free = not prod(slot.shape)  # of its strides nothing is read
            lies = Slot(slot.name, slot.dtype, slot.shape, view.strides if free else slot.strides, slot.nbytes, False)
            check_view(lies, view, writable=writable and not free)
        elif not _is_plain(slot, tensor, writable):
            refuse(slot, tensor, writable)

    def _written(self, tensors: Sequence[Any], out: Any) -> Any:
        slot = self._result
        if isinstance(tensors[0], np.ndarray):
            made = pitched_empty(slot.shape, slot.strides, dtype(slot.dtype).numpy()) if out is None else out
            if made.size:
                made[...] = self._array(tensors).astype(made.dtype)
            return made
        if is_tensor(tensors[0]):
            torch = sys.modules["torch"]
            made = torch.empty_strided(
                slot.shape, slot.strides, dtype=_torch_dtype(slot), device=tensors[0].device
            ) if out is None else out  # fmt: skip
            with torch.no_grad():
                made.copy_(self._tensor(tensors))
            return made
        return self._on_device(tensors, out)

    # --- what the epilogue makes of nothing ---

    def _addends(self, tensors: Sequence[Any]) -> tuple[list[Any], Any, Any]:
        """The bias and the residual, what the result begins as, and the scale of the sums, which are zero.

        A convolution's results have no elements then.
        """
        first = self._signature.first_extra if isinstance(self._signature, GemmSignature) else 2
        extra = list(tensors[first:])
        initial = extra.pop() if self._beta != 0 else None
        return extra, initial, extra.pop() if self._signature.epilogue.is_scaled else None

    def _array(self, tensors: Sequence[Any]) -> Any:
        from tilesmith.measure.oracle import activate

        kind = np.int64 if self._result.dtype == "int32" else np.float64
        addends, initial, scale = self._addends(tensors)
        value = np.zeros(self._result.shape, kind)
        if scale is not None and value.size:
            value = value * scale.astype(np.float64)
        if initial is not None:
            value = value + (self._beta * initial.astype(np.float64)).astype(kind)
        for each in addends:
            value = value + each.astype(kind)
        value = activate(value, self._signature.epilogue)
        if self._result.dtype == "int8":
            value = np.rint(np.clip(np.where(np.isnan(value), 0.0, value), -128.0, 127.0))
        return value

    def _tensor(self, tensors: Sequence[Any]) -> Any:
        from tilesmith.solvers.external.operators import activate

        torch = sys.modules["torch"]
        kind = torch.int64 if self._result.dtype == "int32" else torch.float64
        addends, initial, scale = self._addends(tensors)
        value = torch.zeros(self._result.shape, dtype=kind, device=tensors[0].device)
        if not value.numel():
            return value
        if scale is not None:
            value = value * scale.to(torch.float64)
        if initial is not None:
            value = value + (self._beta * initial.to(torch.float64)).to(kind)
        for each in addends:
            value = value + each.to(kind)
        value = activate(self._signature.epilogue, value)
        if self._result.dtype == "int8":
            value = value.nan_to_num(0.0).clamp(-128, 127).round()
        return value.to(_torch_dtype(self._result))

    def _on_device(self, tensors: Sequence[Any], out: Any) -> Any:
        """Tensors of other libraries on a device: what needs no arithmetic."""
        slot = self._result
        view = view_of(self._inputs[0], tensors[0])
        made = view.library.empty(slot, view.keep, view.ordinal) if out is None else out
        if prod(slot.shape):
            if len(tensors) > 2 or self._signature.epilogue.activation != "none" or slot.nbytes != _dense_bytes(slot):
                raise ArgumentError(
                    f"a result without products is computed for NumPy arrays and PyTorch tensors, got "
                    f"{type(tensors[0]).__module__}.{type(tensors[0]).__qualname__}"
                )
            device(view.ordinal).zero(view_of(slot, made).address, slot.nbytes, view.library.stream(view.ordinal))
        return made

    @property
    def _beta(self) -> float:
        return float(getattr(self._signature, "beta", 0.0))


@dataclass(frozen=True)
class EmptyPrepared:
    """A problem without elements, with its filter."""

    bound: EmptyBound
    filter: Any

    def __call__(self, *others: Any, out: Any = None) -> Any:
        return self.bound(*others[:_FILTER], self.filter, *others[_FILTER:], out=out)


def _is_plain(slot: Slot, tensor: Any, writable: bool) -> bool:
    wanted = dtype(slot.dtype).numpy()
    if isinstance(tensor, np.ndarray):
        plain = not hasattr(tensor, "mask") and tensor.dtype == wanted and (tensor.flags.writeable or not writable)
        return plain and tensor.shape == slot.shape
    if not is_tensor(tensor):
        return False
    found = str(tensor.dtype), str(tensor.layout), tensor.device.type, tuple(tensor.shape)
    return found == (f"torch.{wanted}", "torch.strided", "cpu", slot.shape)


def _torch_dtype(slot: Slot) -> Any:
    return getattr(sys.modules["torch"], str(dtype(slot.dtype).numpy()))


def _dense_bytes(slot: Slot) -> int:
    return prod(slot.shape) * dtype(slot.dtype).nbytes
