"""The common part of the portable families: the first text of their sources, and its names of types."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from tilesmith.codegen.cuda.unit import Argument, integers

# Of an element in that text.
TYPES = {
    "bf16": "bf16", "fp16": "fp16", "fp32": "float", "tf32": "tf32", "int8": "int8", "int32": "int",
    "fp8e4m3": "fp8e4m3", "fp8e5m2": "fp8e5m2",
}  # fmt: skip


@lru_cache(maxsize=1)
def mma_prelude() -> str:
    """Wrappers of what sm_80 and later have (``mma.cuh``)."""
    return Path(__file__).with_name("mma.cuh").read_text()


def divisor(value: int) -> tuple[int, int]:
    """``(m, s)`` such that ``n // value == n * m >> s`` for 0 <= n < 2^31, with ``m`` below 2^32."""
    shift = 31 + (value - 1).bit_length()
    return -(-(1 << shift) // value), shift


def divisors(**values: int) -> tuple[Argument, ...]:
    """Each as ``name``, with ``name_m`` and ``name_s``, by which ``divided`` divides."""
    found: list[Argument] = []
    for name, value in values.items():
        m, s = divisor(value)
        found += [*integers("int", **{name: value}), *integers("u32", **{f"{name}_m": m, f"{name}_s": s})]
    return tuple(found)
