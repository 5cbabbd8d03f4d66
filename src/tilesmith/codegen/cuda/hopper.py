"""The text that every sm_90a source begins with, and wgmma instructions by shape."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path


@lru_cache(maxsize=1)
def hopper_prelude() -> str:
    """Wrappers of sm_90a's instructions (``hopper.cuh``)."""
    return Path(__file__).with_name("hopper.cuh").read_text()


def product_text(name: str, block_n: int, dtype: str, a_columns: bool, b_columns: bool) -> str:
    """A device function ``name(sums, a, b, add)``: a 64 x ``block_n`` x 16 product of shared-memory descriptors.

    ``sums`` are overwritten when ``add`` is 0. ``a_columns``: rows of A, not k, are contiguous; so for B's columns.
    """
    if block_n % 8 or not 8 <= block_n <= 256:
        raise ValueError(f"wgmma has no {block_n} columns: multiples of 8 up to 256")
    count = block_n // 2
    word = {"bf16": "bf16", "fp16": "f16"}[dtype]
    registers = ", ".join(f"%{i}" for i in range(count))
    sums = ", ".join(f'"+f"(sums[{i}])' for i in range(count))
    return f"""TS_DEVICE void {name}(float (&sums)[{count}], ts_u64 a, ts_u64 b, int add) {{
  asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{count + 2}, 0;\\n"
               "wgmma.mma_async.sync.aligned.m64n{block_n}k16.f32.{word}.{word} {{{registers}}}, "
               "%{count}, %{count + 1}, p, 1, 1, {int(a_columns)}, {int(b_columns)}; }}"
               : {sums}
               : "l"(a), "l"(b), "r"(add));
}}
"""
