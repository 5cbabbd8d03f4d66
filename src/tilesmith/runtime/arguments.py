"""Explains why an argument of a call is refused. The C binding decides."""

from __future__ import annotations

from typing import Any

from tilesmith.errors import ArgumentError
from tilesmith.plan.records import Slot
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.layouts import dense_strides
from tilesmith.runtime.torch_rules import is_tensor, refuse_own_operators, refuse_watched

# Exact answers to "do these two strided tensors share an element?" can take for ever; beyond this, the answer is yes.
_OVERLAP_WORK = 10**6


def refuse(slot: Slot, given: object, writable: bool) -> None:
    """Raise ``ArgumentError`` with both what ``slot`` wants and what ``given`` has."""
    import numpy as np

    name, kind = "out" if writable else slot.name, type(given)
    refuse_watched((given,))
    if is_tensor(given):
        refuse_own_operators(name, given)
    facts = _facts(given)
    if facts is None:
        raise ArgumentError(
            f"{name} must be a NumPy array or a PyTorch CPU tensor, got {kind.__module__}.{kind.__qualname__}"
        )
    device, element, shape, strides, aligned = facts
    if device != "cpu":
        raise ArgumentError(f"{name} must be on the CPU, got a tensor on device {device}")
    wanted = str(dtype(slot.dtype).numpy())
    if element != wanted:
        refuse_swapped(name, given)
        typed = to_type(given, wanted)
        raise ArgumentError(f"{name} must have dtype {wanted}, got {element}; type {name}.{typed}")
    if shape != slot.shape:
        typed = f"; type {name}.reshape(1)" if (slot.shape, shape) == ((1,), ()) else ""
        raise ArgumentError(f"{name} must have shape {slot.shape}, got {shape}{typed}")
    if strides is None:
        raise ArgumentError(f"{name} must be a plain strided tensor, got {kind.__module__}.{kind.__qualname__}")
    if any(n > 1 and a != b for n, a, b in zip(shape, slot.strides, strides, strict=True)):
        dense = slot.strides == dense_strides(slot.shape)
        copied = f"np.ascontiguousarray({name})" if isinstance(given, np.ndarray) else f"{name}.contiguous()"
        typed = f"; type {copied}" if dense and not writable else ""
        raise ArgumentError(f"{name} must have strides {slot.strides} (in elements), got {strides}{typed}")
    if hasattr(given, "mask"):
        raise ArgumentError(f"{name} has a mask, which no kernel reads; pass numpy.ma.filled(...) of it")
    if not aligned:
        raise ArgumentError(f"{name} must be aligned to its elements of {dtype(slot.dtype).nbytes} bytes")
    if writable and not getattr(getattr(given, "flags", None), "writeable", True):
        raise ArgumentError(f"{name} is written, got a read-only array")
    if callable(getattr(given, "is_neg", None)) and given.is_neg():  # type: ignore[attr-defined]
        raise ArgumentError(f"{name} is a lazily negated view; call resolve_neg() on it")
    raise ArgumentError(f"{name} of type {kind.__module__}.{kind.__qualname__} has no memory that can be read")


def refuse_swapped(name: str, given: Any) -> None:
    """Raise ``ArgumentError`` for a NumPy array of another byte order than this machine's."""
    element = getattr(given, "dtype", None)
    if getattr(element, "isnative", True):
        return
    order = "big" if element.byteorder == ">" else "little"  # type: ignore[union-attr]
    raise ArgumentError(
        f"{name} is {order}-endian ({element.str}), and kernels read this machine's byte order alone; "  # type: ignore[union-attr]
        f"type {name}.astype({name}.dtype.newbyteorder('='))"
    )


def to_type(given: Any, wanted: str) -> str:
    """The method that makes a tensor of this dtype (NumPy's name for it) of another."""
    import numpy as np

    if not isinstance(given, np.ndarray):
        return f"to(torch.{wanted})"
    return f"astype({'np' if wanted in np.sctypeDict else 'ml_dtypes'}.{wanted})"


def mixed(first: str, one: Any, second: str, other: Any) -> str:
    """The message for two arguments of two libraries."""
    import numpy as np

    kinds = [("NumPy array" if isinstance(each, np.ndarray) else "PyTorch tensor") for each in (one, other)]
    typed = f"torch.from_numpy({second})" if isinstance(other, np.ndarray) else f"{second}.numpy()"
    return f"{first} is a {kinds[0]}, {second} is a {kinds[1]}: give one kind; type {typed}"


def refuse_mixed(first_slot: Slot, first: object, second_slot: Slot, second: object) -> None:
    """Raise ``ArgumentError`` for arguments of two libraries."""
    raise ArgumentError(mixed(first_slot.name, first, second_slot.name, second))


def refuse_overlap(first_slot: Slot, first: object, second_slot: Slot, second: object) -> None:
    """Raise ``ArgumentError`` if the two tensors share an element; their bytes may interleave."""
    import numpy as np

    try:
        views = _as_bytes(first_slot, first), _as_bytes(second_slot, second)
        # The stubs know two of the numbers that it takes.
        shared = np.shares_memory(*views, max_work=_OVERLAP_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        shared = True
    if shared:
        raise ArgumentError(f"out overlaps {first_slot.name}; a result needs memory of its own")


def _facts(given: Any) -> tuple[str, str, tuple[int, ...], tuple[int, ...] | None, bool] | None:
    """Device, dtype, shape, strides in elements (None if it has none) and alignment; None for what is no tensor."""
    import numpy as np

    if isinstance(given, np.ndarray):
        size = given.dtype.itemsize or 1
        whole = all(step % size == 0 for step in given.strides)
        strides = tuple(step // size for step in given.strides) if whole else None
        # str() leaves the byte order out.
        element = str(given.dtype) if given.dtype.isnative else given.dtype.str
        return "cpu", element, given.shape, strides, bool(given.flags.aligned)
    if not (hasattr(type(given), "data_ptr") and hasattr(type(given), "new_empty_strided")):
        return None
    try:
        device = str(given.device)
        element = str(given.dtype).rpartition(".")[2]
        shape = tuple(int(n) for n in given.shape)
    except Exception as error:
        raise ArgumentError(f"a tensor of type {type(given).__name__} cannot be read: {_first_line(error)}") from None
    try:
        return (
            device, element, shape, tuple(int(s) for s in given.stride()), given.data_ptr() % given.element_size() == 0,
        )  # fmt: skip
    except Exception:  # sparse and opaque tensors have no strides or no memory
        return device, element, shape, None, True


def _as_bytes(slot: Slot, given: Any) -> Any:
    """A NumPy view of a checked tensor's bytes (the dtype may be one that NumPy does not know)."""
    import numpy as np

    size = dtype(slot.dtype).nbytes
    address = given.ctypes.data if isinstance(given, np.ndarray) else given.data_ptr()

    class View:
        __array_interface__ = {  # noqa: RUF012
            "version": 3,
            "shape": slot.shape,
            "strides": tuple(step * size for step in slot.strides),
            "typestr": f"|V{size}",
            "data": (address, True),
        }

    return np.asarray(View())


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
