"""The operation on a result before it is stored: ``activation(scale * accumulator + bias + residual)``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilesmith.errors import ProblemError

_ACTIVATIONS = {
    "relu6": "activation='clamp', low=0.0, high=6.0", "hardtanh": "activation='clamp', low=-1.0, high=1.0",
    "clip": "activation='clamp'", "swish": "activation='silu'", "leakyrelu": "activation='leaky_relu'",
    "lrelu": "activation='leaky_relu'", "linear": "activation='none'", "identity": "activation='none'",
    "": "activation='none'", "hswish": "activation='hardswish'", "hard_swish": "activation='hardswish'",
    "hsigmoid": "activation='hardsigmoid'", "hard_sigmoid": "activation='hardsigmoid'",
    "gelutanh": "activation='gelu_tanh'", "gelu_new": "activation='gelu_tanh'",
    "gelu_pytorch_tanh": "activation='gelu_tanh'",
}  # fmt: skip


def activation_to_type(name: object, known: Sequence[str]) -> str:
    """The arguments to type for an activation that another library calls ``name`` (text or a module); may be empty."""
    if name is None:
        return "activation='none'"
    if getattr(name, "approximate", None) == "tanh":  # torch.nn.GELU(approximate="tanh")
        return "activation='gelu_tanh'"
    text = (name if isinstance(name, str) else type(name).__name__).strip().lower().rpartition(".")[2]
    return _ACTIVATIONS.get(text) or (f"activation={text!r}" if text in known else "")


SCALES = ("none", "tensor", "channel")
# Known since keys of version 1, and added later: a later one makes a key of version 2. New names go to the end.
_FIRST = ("none", "relu", "leaky_relu", "silu", "gelu", "clamp")
LATER = ("sigmoid", "tanh", "hardswish", "hardsigmoid", "gelu_tanh")
ACTIVATIONS = (*_FIRST, *LATER)


@dataclass(frozen=True)
class Epilogue:
    """``activation(scale * r + bias[channel] + residual)`` for the result ``r``; each part is optional.

    Computed in the accumulation type, before the result is rounded. With a scale it is computed in fp32 or better and
    rounded once: an int8 result is rounded to nearest even and saturated to -128 to 127, and a NaN becomes 0; an fp8
    result is rounded as without a scale (a value that is too large becomes Inf, in fp8e4m3 NaN). A NaN stays a NaN
    through every activation. Inf gives the limit; but for -Inf ``silu``, ``gelu``, ``gelu_tanh`` and ``hardswish`` give
    NaN, as in PyTorch.

    Args:
        bias: Add one element for each result channel (for a GEMM: each column). The bias is an operand of the call, of
            shape ``(channels,)`` and of the result's dtype; fp32 with a scale.
        activation: ``"none"``, ``"relu"``, ``"leaky_relu"``, ``"silu"``, ``"gelu"`` (exact:
            ``r * 0.5 * (1 + erf(r / sqrt(2)))``), ``"gelu_tanh"`` (PyTorch's ``gelu`` with ``approximate="tanh"``),
            ``"clamp"``, ``"sigmoid"``, ``"tanh"``, ``"hardswish"`` or ``"hardsigmoid"``.
        residual: Add a tensor. The residual is an operand of the call, with the result's shape, layout and dtype.
        slope: Factor of ``"leaky_relu"`` for negative values.
        low: Lower limit of ``"clamp"``.
        high: Upper limit of ``"clamp"``.
        scale: ``"none"``; ``"tensor"``: one factor for the whole result; ``"channel"``: one for each result channel.
            The factors are an fp32 operand of the call, of shape ``(1,)`` or ``(channels,)``. Only for fp8 results, and
            for int8 results of int8 products.

    Raises:
        ProblemError: A value breaks a rule, or ``low`` is above ``high``.

    Examples:
        >>> from tilesmith import Epilogue
        >>> Epilogue(bias=True, activation="clamp", low=0.0, high=1.0).is_identity
        False
    """

    bias: bool = False
    activation: str = "none"
    residual: bool = False
    slope: float = 0.01
    low: float = 0.0
    high: float = 6.0
    scale: str = "none"

    def __post_init__(self) -> None:
        if not isinstance(self.activation, str) or self.activation not in ACTIVATIONS:
            typed = activation_to_type(self.activation, ACTIVATIONS)
            rule = f"type {typed}" if typed else f"known: {', '.join(ACTIVATIONS)}"
            raise ProblemError(f"activation {self.activation!r} does not exist; {rule}")
        for name in ("bias", "residual"):
            if not isinstance(getattr(self, name), bool):
                raise ProblemError(f"{name} must be True or False, got {getattr(self, name)!r}")
        if not isinstance(self.scale, str) or self.scale not in SCALES:
            raise ProblemError(f"scale {self.scale!r} does not exist; known: {', '.join(SCALES)}")
        for name in ("slope", "low", "high"):
            object.__setattr__(self, name, _number(name, getattr(self, name)))
        if self.activation == "clamp" and not self.low <= self.high:
            raise ProblemError(f"clamp needs low <= high, got low={self.low}, high={self.high}")
        if self.activation == "leaky_relu" and not math.isfinite(self.slope):
            raise ProblemError(f"leaky_relu needs a finite slope, got {self.slope}")
        # Reset fields that the activation does not read, so that equal epilogues compare equal.
        if self.activation != "leaky_relu":
            object.__setattr__(self, "slope", 0.01)
        if self.activation != "clamp":
            object.__setattr__(self, "low", 0.0)
            object.__setattr__(self, "high", 6.0)

    @property
    def is_identity(self) -> bool:
        return not (self.bias or self.residual or self.is_scaled) and self.activation == "none"

    @property
    def is_scaled(self) -> bool:
        return self.scale != "none"

    @property
    def is_late(self) -> bool:
        """Whether it has something that keys of version 1 cannot say."""
        return self.is_scaled or self.activation in LATER

    def bias_dtype(self, result: str) -> str:
        """The element type of a bias for a result of type ``result``."""
        return "fp32" if self.is_scaled else result

    def refuse_result(self, result: str) -> None:
        """Raise ``ProblemError`` if there is a scale and a result of this type cannot have one."""
        if self.is_scaled and result not in ("int8", "fp8e4m3", "fp8e5m2"):
            raise ProblemError(f"scale {self.scale!r} goes with an int8 or fp8 result, got {result}")


def _number(name: str, value: object) -> float:
    if isinstance(value, bool | str) or not hasattr(value, "__float__"):
        raise ProblemError(f"{name} must be a number, got {value!r}")
    try:
        return float(value) + 0.0  # -0.0 becomes 0.0
    except TypeError:  # an array of several numbers
        raise ProblemError(f"{name} must be a number, got {value!r}") from None
    except OverflowError:
        raise ProblemError(f"{name} must be a number, got one beyond any float") from None


IDENTITY = Epilogue()
