"""What happens to a result before it is stored: ``activation(accumulator + bias + residual)``."""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.errors import ProblemError

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
        if self.activation not in ACTIVATIONS:
            raise ProblemError(f"activation {self.activation!r} does not exist; known: {', '.join(ACTIVATIONS)}")
        if self.activation == "clamp" and not self.low <= self.high:
            raise ProblemError(f"clamp needs low <= high, got low={self.low}, high={self.high}")
        # What the activation does not read must not make two equal epilogues differ.
        if self.activation != "leaky_relu":
            object.__setattr__(self, "slope", 0.01)
        if self.activation != "clamp":
            object.__setattr__(self, "low", 0.0)
            object.__setattr__(self, "high", 6.0)

    @property
    def is_identity(self) -> bool:
        return not (self.bias or self.residual) and self.activation == "none"


IDENTITY = Epilogue()
