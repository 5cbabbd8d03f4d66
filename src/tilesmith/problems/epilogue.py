"""What happens to a result before it is stored: ``activation(accumulator + bias + residual)``."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilesmith.errors import ProblemError
from tilesmith.problems.other_names import activation_to_type

ACTIVATIONS = ("none", "relu", "leaky_relu", "silu", "gelu", "clamp")


@dataclass(frozen=True)
class Epilogue:
    """``activation(r + bias[channel] + residual)``, each part optional, computed in the accumulation type.

    ``bias`` has one element per result channel, in the result's dtype; ``residual`` has the result's shape, layout and
    dtype. ``gelu`` is the exact ``r * 0.5 * (1 + erf(r / sqrt(2)))``. ``slope`` is leaky relu's factor for negative
    values; ``low`` and ``high`` are clamp's limits. A NaN stays a NaN through every activation.
    """

    bias: bool = False
    activation: str = "none"
    residual: bool = False
    slope: float = 0.01
    low: float = 0.0
    high: float = 6.0

    def __post_init__(self) -> None:
        if not isinstance(self.activation, str) or self.activation not in ACTIVATIONS:
            typed = activation_to_type(self.activation, ACTIVATIONS)
            rule = f"type {typed}" if typed else f"known: {', '.join(ACTIVATIONS)}"
            raise ProblemError(f"activation {self.activation!r} does not exist; {rule}")
        for name in ("bias", "residual"):
            if not isinstance(getattr(self, name), bool):
                raise ProblemError(f"{name} must be True or False, got {getattr(self, name)!r}")
        for name in ("slope", "low", "high"):
            object.__setattr__(self, name, _number(name, getattr(self, name)))
        if self.activation == "clamp" and not self.low <= self.high:
            raise ProblemError(f"clamp needs low <= high, got low={self.low}, high={self.high}")
        if self.activation == "leaky_relu" and not math.isfinite(self.slope):
            raise ProblemError(f"leaky_relu needs a finite slope, got {self.slope}")
        # What the activation does not read must not make two equal epilogues differ.
        if self.activation != "leaky_relu":
            object.__setattr__(self, "slope", 0.01)
        if self.activation != "clamp":
            object.__setattr__(self, "low", 0.0)
            object.__setattr__(self, "high", 6.0)

    @property
    def is_identity(self) -> bool:
        return not (self.bias or self.residual) and self.activation == "none"


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
