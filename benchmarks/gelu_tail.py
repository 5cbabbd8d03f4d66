"""Fits the polynomials by which GPU kernels compute exact GELU of few bits: ``log2 phi(-t)``, for the tail ``phi``.

    python benchmarks/gelu_tail.py

Prints the coefficients that ``src/tilesmith/codegen/cuda/gelu.py`` holds, highest power first, and what they leave: the
largest error over what is allowed of it, ``|error of phi| <= (a + b * phi) * 2^-24`` and ``r * phi``. ``a`` is part of
the eight roundings of an argument that the check of a kernel's results allows its epilogue, ``b`` part of 2^-10 of a
result's rounding, which it allows too, ``r`` keeps small results right: an eighth of half a bf16 step and less for
fp16. An fp16 result is 0 for ``t`` above 5.8, an fp8 one above 4.8; a bf16 one has 9 as fp32 has. ``LEAST`` tells the
next lower degree's error. (The polynomial of fp32 results, of degree 10, is older.)

The fit is Remez's exchange on a fine grid; then the coefficients are rounded to fp32.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
UNIT, POINTS, EXCHANGES = 2.0**-24, 4001, 100


@dataclass(frozen=True)
class Aim:
    """What is allowed of the tail's error for ``t`` in [0, ``top``]."""

    degree: int
    top: float
    a: float  # roundings of the argument, 2^-24
    b: float  # the same of the tail
    r: float  # relative

    @property
    def points(self) -> Array:
        """Denser towards the ends."""
        return self.top / 2 * (1 - np.cos(np.linspace(0, math.pi, POINTS)))

    def allowed(self, tail: Array) -> Array:
        """Of ``log2`` of the tail."""
        return np.minimum((self.a / tail + self.b) * UNIT, self.r) / math.log(2)


AIMS = {
    "fp8": Aim(5, 5.0, 3.0, 1024.0, 2.0**-8),
    "fp16": Aim(7, 6.0, 3.6, 5.0, 1e-4),
    "bf16": Aim(7, 9.0, 3.0, 20.0, 3e-4),
}


def tail_of(t: Array) -> Array:
    return np.array([0.5 * math.erfc(each / math.sqrt(2)) for each in t])


def worst(aim: Aim, coefficients: tuple[float, ...]) -> float:
    """The largest error over what is allowed; ``coefficients`` from the highest power."""
    t = aim.points
    tail = tail_of(t)
    return float(np.max(np.abs(np.polyval(coefficients, t) - np.log2(tail)) / aim.allowed(tail)))


def fitted(aim: Aim) -> tuple[float, ...]:
    """The coefficients of the best polynomial in fp32, highest power first."""
    t, tail, count = aim.points, tail_of(aim.points), aim.degree + 1
    wanted, weight = np.log2(tail), aim.allowed(tail)
    powers = np.stack([(t / aim.top) ** power for power in range(count)], axis=1)
    at, signs = np.linspace(0, POINTS - 1, count + 1).round().astype(int), (-1.0) ** np.arange(count + 1)
    for _ in range(EXCHANGES):
        system = np.concatenate([powers[at] / weight[at, None], signs[:, None]], axis=1)
        found = np.linalg.solve(system, wanted[at] / weight[at])[:-1]
        error = (powers @ found - wanted) / weight
        swings = np.split(np.arange(POINTS), np.flatnonzero(np.diff(np.sign(error))) + 1)
        peaks = [swing[np.argmax(np.abs(error[swing]))] for swing in swings]
        while len(peaks) > count + 1:
            peaks.pop(0 if abs(error[peaks[0]]) < abs(error[peaks[-1]]) else -1)
        if len(peaks) <= count or np.array_equal(peaks, at):
            break
        at = np.array(peaks)
    return tuple(float(np.float32(each / aim.top**power)) for power, each in reversed(list(enumerate(found))))


def main() -> int:
    for name, aim in AIMS.items():
        lower = Aim(aim.degree - 1, aim.top, aim.a, aim.b, aim.r)
        found, fewer = fitted(aim), worst(lower, fitted(lower))
        print(f"{name}: {found}\n  {worst(aim, found):.2f} of what is allowed; of degree {lower.degree} {fewer:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
