"""Element types: their names, sizes and rounding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from tilesmith.errors import ProblemError

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class DType:
    """One element type.

    ``nbytes`` is the size of an element; ``epsilon`` the unit roundoff (half the spacing at 1), 0 for integers.
    """

    name: str
    nbytes: int
    epsilon: float
    is_integer: bool = False

    def numpy(self) -> np.dtype[Any]:
        """The NumPy type; bf16 and fp8 come from ``ml_dtypes``, which is imported only for them."""
        import numpy as np

        if self.name in _PLAIN_NUMPY:
            return np.dtype(_PLAIN_NUMPY[self.name])
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES[self.name]))
        return found


_PLAIN_NUMPY = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "int8": "int8", "int32": "int32"}
_ML_DTYPES = {"bf16": "bfloat16", "fp8e4m3": "float8_e4m3fn", "fp8e5m2": "float8_e5m2"}

DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        DType("fp64", 8, 2.0**-53), DType("fp32", 4, 2.0**-24), DType("fp16", 2, 2.0**-11), DType("bf16", 2, 2.0**-8),
        DType("fp8e4m3", 1, 2.0**-4), DType("fp8e5m2", 1, 2.0**-3), DType("int8", 1, 0.0, is_integer=True),
        DType("int32", 4, 0.0, is_integer=True),
    )
}  # fmt: skip


# How PyTorch, NumPy and ml_dtypes call the same types.
_ALIASES = {
    "float64": "fp64", "double": "fp64", "float32": "fp32", "float": "fp32", "float16": "fp16", "half": "fp16",
    "bfloat16": "bf16", "float8_e4m3fn": "fp8e4m3", "float8_e5m2": "fp8e5m2",
}  # fmt: skip


def dtype(name: str) -> DType:
    """The element type called ``name`` here, in PyTorch or in NumPy; ``ProblemError`` if there is none."""
    known = DTYPES.get(name) if isinstance(name, str) else None
    if known is not None:
        return known
    text = str(name).removeprefix("torch.")
    try:
        return DTYPES[_ALIASES.get(text, text)]
    except KeyError:
        raise ProblemError(f"dtype {text!r} does not exist; known: {', '.join(DTYPES)}") from None


# fp32 whose operands may be rounded to 10 bits of fraction before they are multiplied; no tensor is stored so.
TF32 = DType("tf32", 4, 2.0**-11)


def acc_dtype(name: str) -> DType:
    """The accumulation type called ``name``: an element type, or ``tf32``; ``ProblemError`` if there is none."""
    return TF32 if str(name) == TF32.name else dtype(name)


def refuse_tf32(tensors: tuple[str, ...]) -> None:
    """Raise ``ProblemError`` unless every tensor is fp32."""
    if set(tensors) != {"fp32"}:
        raise ProblemError(f"acc_dtype 'tf32' goes with fp32 tensors, got {', '.join(tensors)}")


class SumsOf(TypedDict):
    """How a geometry says what an accumulation type means."""

    acc_dtype: str
    tf32: bool


def sums_of(name: str) -> SumsOf:
    """``tf32`` sums are fp32's: a solver that knows of no other answers exactly."""
    rounded = name == TF32.name
    return {"acc_dtype": "fp32" if rounded else name, "tf32": rounded}


def default_acc_dtype(*names: str) -> str:
    """The accumulation type of a problem whose tensors have these types."""
    if "int8" in names:
        return "int32"
    return "fp64" if "fp64" in names else "fp32"
