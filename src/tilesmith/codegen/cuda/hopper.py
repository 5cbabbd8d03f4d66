"""The text that every sm_90a source begins with, and wgmma instructions by shape."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from tilesmith.problems.dtypes import acc_dtype

_WORDS = {"bf16": "bf16", "fp16": "f16", "tf32": "tf32", "fp8e4m3": "e4m3", "fp8e5m2": "e5m2", "int8": "s8"}


@lru_cache(maxsize=1)
def hopper_prelude() -> str:
    """Wrappers of sm_90a's instructions (``hopper.cuh``, ``roles.cuh``, ``bulk.cuh``)."""
    return _text("hopper") + _text("roles") + _text("bulk")


@lru_cache(maxsize=6)
def _text(name: str) -> str:
    return Path(__file__).with_name(f"{name}.cuh").read_text()


def mma_bulk_text() -> str:
    """The mbarriers and bulk copies of ``bulk.cuh`` for kernels that have the prelude of ``mma.cuh``."""
    return _in_mma_names(_text("bulk"))


def mma_wait_text() -> str:
    """``barrier_wait`` for the same kernels."""
    return _text("bulk_wait")


def mma_arrive_text() -> str:
    """``barrier_arrive`` for the same kernels."""
    return _text("bulk_arrive")


def mma_producer_text() -> str:
    """``roles.cuh`` and ``producers.cuh`` for the same kernels, where one warpgroup copies and others multiply."""
    return _in_mma_names(_text("roles")) + _text("producers")


def product_text(
    name: str,
    block_n: int,
    dtype: str,
    a_columns: bool,
    b_columns: bool,
    b_dtype: str | None = None,
    loaded: bool = False,
) -> str:
    """A device function ``name(sums, a, b, add)``: a 64 x ``block_n`` product over 32 bytes of k, by descriptors.

    ``sums`` are overwritten when ``add`` is 0. ``a_columns``: rows of A, not k, are contiguous; so for B's columns.
    ``b_dtype`` is ``dtype`` where it is None. ``loaded``: A comes in registers, ``a`` is a lane's four; always so TF32
    whose rows are contiguous.
    """
    if block_n not in product_widths(dtype):
        raise ValueError(f"wgmma has no {block_n} columns of {dtype}")
    loaded = loaded or (a_columns and dtype == "tf32")
    if (a_columns or b_columns) and dtype not in ("bf16", "fp16") and not (loaded and not b_columns):
        raise ValueError(f"wgmma has no transposed operands of {dtype}")
    count, depth = block_n // 2, 32 // acc_dtype(dtype).nbytes
    whole = dtype == "int8"
    words = f"{'s32' if whole else 'f32'}.{_WORDS[dtype]}.{_WORDS[b_dtype or dtype]}"
    kind, letter = ("int", "r") if whole else ("float", "f")
    registers = ", ".join(f"%{i}" for i in range(count))
    sums = ", ".join(f'"+{letter}"(sums[{i}])' for i in range(count))
    # Signs of the operands, which integers lack; 16-bit operands in shared memory have a transposition each.
    signs = "" if whole else ", 1, 1"
    turned = (b_columns,) if loaded else (a_columns, b_columns)
    signs += "".join(f", {int(turn)}" for turn in turned) if depth == 16 else ""
    first, given = (
        ("const ts_u32 (&a)[4]", '"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])') if loaded else ("ts_u64 a", '"l"(a)')
    )
    after = count + (4 if loaded else 1)
    operand = f"{{{', '.join(f'%{i}' for i in range(count, after))}}}" if loaded else f"%{count}"
    return f"""TS_DEVICE void {name}({kind} (&sums)[{count}], {first}, ts_u64 b, int add) {{
  asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{after + 1}, 0;\\n"
               "wgmma.mma_async.sync.aligned.m64n{block_n}k{depth}.{words} {{{registers}}}, "
               "{operand}, %{after}, p{signs}; }}"
               : {sums}
               : {given}, "l"(b), "r"(add));
}}
"""


def mma_product_text(block_n: int, dtype: str) -> str:
    """``product(sums, a, b, add)`` with A in registers, for kernels that have the prelude of ``mma.cuh``."""
    return _in_mma_names(product_text("product", block_n, dtype, False, False, loaded=True))


def _in_mma_names(text: str) -> str:
    return text.replace("TS_DEVICE", "TS_MMA_DEVICE").replace("ts_u", "u")


@lru_cache(maxsize=8)
def product_widths(dtype: str) -> tuple[int, ...]:
    """The columns that products of ``dtype`` can have: multiples of 8, of int8 those of 16 beyond 32."""
    return tuple(n for n in range(8, 257, 8) if dtype != "int8" or n % 16 == 0 or n < 32)
