"""CUDA text for one element at a time: loads to double, stores with one rounding, activations in double. No headers.

The text defines ``ts_load_D(base, index)`` and ``ts_store_D(base, index, value)`` for the dtypes asked for; it is a
prelude, so a unit holds it once.
"""

from __future__ import annotations

from functools import lru_cache

from tilesmith.codegen.rounding import rounding_text
from tilesmith.problems.epilogue import ACTIVATIONS

POINTEE = {
    "fp64": "double", "fp32": "float", "fp16": "unsigned short", "bf16": "unsigned short",
    "fp8e4m3": "unsigned char", "fp8e5m2": "unsigned char", "int8": "signed char", "int32": "int",
}  # fmt: skip

# Explicit mantissa bits, exponent bits, whether the type has infinities.
_SMALL = {"fp16": (10, 5, True), "bf16": (7, 8, True), "fp8e4m3": (3, 4, False), "fp8e5m2": (2, 5, True)}

# A float of ``m`` mantissa bits is widened by moving its bits, and narrowed with one rounding (to nearest even).
_HEAD = """typedef long long ts_i64;
typedef unsigned long long ts_u64;

__device__ inline double ts_widen(unsigned b, int m, int e, bool inf) {
  const unsigned frac = b & ((1u << m) - 1), expo = (b >> m) & ((1u << e) - 1);
  const ts_u64 sign = (ts_u64)(b >> (m + e)) << 63;
  const int bias = (1 << (e - 1)) - 1;
  if (expo == (1u << e) - 1 && (inf || frac == (1u << m) - 1)) {
    const ts_u64 rest = inf ? (ts_u64)frac << (52 - m) : 0x8000000000000ull;
    return __longlong_as_double((ts_i64)(sign | 0x7ff0000000000000ull | rest));
  }
  if (expo == 0) /* zero or subnormal: frac * 2^(1 - bias - m), exact */
    return __longlong_as_double((ts_i64)(sign | (ts_u64)(1023 + 1 - bias - m) << 52)) * (double)frac;
  return __longlong_as_double((ts_i64)(sign | (ts_u64)(1023 + (int)expo - bias) << 52 | (ts_u64)frac << (52 - m)));
}

__device__ __noinline__ unsigned ts_narrow(double v, int m, int e, bool inf) {
  const int bias = (1 << (e - 1)) - 1;
  const ts_u64 bits = (ts_u64)__double_as_longlong(v);
@ROUND@}

/* Numbers as in problems/epilogue.py; a NaN stays a NaN. */
__device__ __noinline__ double ts_activate(double x, ts_i64 kind, double slope, double low, double high) {
  switch (kind) {
  case @relu@:
    return x < 0.0 ? 0.0 : x;
  case @leaky_relu@:
    return x > 0.0 ? x : x * slope;
  case @silu@:
    return x / (1.0 + exp(-x));
  case @gelu@: /* erfc keeps the relative error small for negative x, where 1 + erf(x) cancels */
    return x * (0.5 * erfc(-0.70710678118654752440 * x));
  case @clamp@:
    return x < low ? low : x > high ? high : x;
  }
  return x;
}
"""


@lru_cache(maxsize=1)
def scalar_prelude() -> str:
    """The text for every dtype."""
    text = _HEAD.replace("@ROUND@", rounding_text("ts_u64", "unsigned", "ull"))
    for number, name in enumerate(ACTIVATIONS):
        text = text.replace(f"@{name}@", str(number))
    return text + "".join(_conversion(name) for name in POINTEE)


def _conversion(name: str) -> str:
    raw = POINTEE[name]
    kind = "ts_i64" if name.startswith("int") else "double"
    load, store = "base[at]", f"({raw})v"
    if name in _SMALL:
        m, e, infinities = _SMALL[name]
        facts = f"{m}, {e}, {'true' if infinities else 'false'}"
        load, store = f"ts_widen(base[at], {facts})", f"({raw})ts_narrow(v, {facts})"
    if name == "bf16":
        load = "(double)__uint_as_float((unsigned)base[at] << 16)"
    return (
        f"\n__device__ inline {kind} ts_load_{name}(const {raw} *base, ts_i64 at) {{ return {load}; }}\n"
        f"__device__ inline void ts_store_{name}({raw} *base, ts_i64 at, {kind} v) {{ base[at] = {store}; }}\n"
    )
