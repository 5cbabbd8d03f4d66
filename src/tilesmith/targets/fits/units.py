"""The units of measured constants, and how those of one card go over to another one.

They stand apart because the many fields of GPUs take longer to define than a processor's whole choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Unit(Enum):
    """``value`` is what reports print. Cycles are those of the clock under load."""

    CYCLES = "cycles"
    PER_CYCLE = "a cycle and SM"
    SECONDS = "s"
    BYTES = "bytes"
    BYTES_PER_S = "bytes/s"
    HERTZ = "Hz"
    SHARE = "share"
    CLUSTERS = "clusters"
    EXPONENT = "exponent"


@dataclass(frozen=True)
class Ratios:
    """How many times faster, or larger, a card is than the one that was measured."""

    cores: float
    clock: float
    memory: float

    def scaled(self, value: float, unit: Unit) -> float:
        """``value`` for that card: times go with the clock, clusters with the SMs, rates of bytes with the memory.

        What is counted in cycles or in bytes of an SM, shares and exponents stay.
        """
        if unit is Unit.SECONDS:
            return value / self.clock
        if unit is Unit.HERTZ:
            return value * self.clock
        if unit is Unit.BYTES_PER_S:
            return value * self.memory
        if unit is Unit.CLUSTERS:
            return int(value * self.cores + 1e-9)
        return value
