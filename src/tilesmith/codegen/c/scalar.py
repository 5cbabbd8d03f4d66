"""Scalar C text of the reference: loads to double and stores from it, one element at a time, rounded once.

Every function's name starts with the kernel's symbol, so that any number of kernels fit into one compile unit.
"""

from __future__ import annotations

_RAW = {
    "fp64": "double",
    "fp32": "float",
    "fp16": "uint16_t",
    "bf16": "uint16_t",
    "fp8e4m3": "uint8_t",
    "fp8e5m2": "uint8_t",
    "int8": "int8_t",
    "int32": "int32_t",
}

# Explicit mantissa bits, exponent bits, whether the type has infinities.
_SMALL = {"fp16": (10, 5, 1), "bf16": (7, 8, 1), "fp8e4m3": (3, 4, 0), "fp8e5m2": (2, 5, 1)}

TYPES = """\
typedef __INT64_TYPE__ int64_t;
typedef __UINT64_TYPE__ uint64_t;
typedef __INT32_TYPE__ int32_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __INT8_TYPE__ int8_t;
typedef __UINT8_TYPE__ uint8_t;
"""

# A float of ``m`` mantissa bits is widened by moving its bits, and narrowed with one rounding (to nearest even).
_WIDEN = """
static inline double @SYM@_widen_@D@(uint32_t b) {
  const int m = @M@, e = @E@, inf = @I@;
  const uint32_t frac = b & ((1u << m) - 1), expo = (b >> m) & ((1u << e) - 1);
  const uint64_t sign = (uint64_t)(b >> (m + e)) << 63;
  const int bias = (1 << (e - 1)) - 1;
  uint64_t bits;
  double v;
  if (expo == (1u << e) - 1 && (inf || frac == (1u << m) - 1)) {
    bits = sign | 0x7ff0000000000000u | (inf ? (uint64_t)frac << (52 - m) : 0x8000000000000u);
    __builtin_memcpy(&v, &bits, 8);
    return v;
  }
  if (expo == 0) { /* zero or subnormal: frac * 2^(1 - bias - m), exact */
    bits = sign | (uint64_t)(1023 + 1 - bias - m) << 52;
    __builtin_memcpy(&v, &bits, 8);
    return v * (double)frac;
  }
  bits = sign | (uint64_t)(1023 + (int)expo - bias) << 52 | (uint64_t)frac << (52 - m);
  __builtin_memcpy(&v, &bits, 8);
  return v;
}
"""

_NARROW = """
static inline uint32_t @SYM@_narrow_@D@(double v) {
  const int m = @M@, e = @E@, inf = @I@;
  const int bias = (1 << (e - 1)) - 1;
  uint64_t bits;
  __builtin_memcpy(&bits, &v, 8);
  const uint32_t sign = (uint32_t)(bits >> 63) << (m + e);
  const int expo = (int)((bits >> 52) & 0x7ff) - 1023;
  const uint32_t top = (1u << e) - 1, not_a_number = sign | top << m | (inf ? 1u << (m - 1) : (1u << m) - 1);
  if (v != v)
    return not_a_number;
  if (expo == 1024)
    return inf ? sign | top << m : not_a_number;
  int drop = 52 - m; /* low bits that do not fit; more of them below the smallest normal number */
  if (expo < 1 - bias)
    drop += 1 - bias - expo;
  if (drop > 54)
    return sign;
  const uint64_t mant = (bits & 0xfffffffffffffu) | 0x10000000000000u;
  const uint64_t half = (uint64_t)1 << (drop - 1), rest = mant & ((half << 1) - 1);
  uint64_t kept = mant >> drop;
  kept += rest > half || (rest == half && (kept & 1));
  /* A carry out of the mantissa goes on into the exponent, as it should. */
  const uint64_t whole = expo < 1 - bias ? kept : kept + ((uint64_t)(expo + bias - 1) << m);
  const uint64_t limit = inf ? (uint64_t)top << m : ((uint64_t)top << m | ((1u << m) - 1));
  return whole >= limit ? (inf ? sign | top << m : not_a_number) : sign | (uint32_t)whole;
}
"""


def conversions(dtypes: set[str]) -> str:
    """``@SYM@_load_D(base, index)`` and ``@SYM@_store_D(base, index, value)`` for each of ``dtypes``, in order."""
    return "".join(_conversion(name) for name in sorted(dtypes))


def _conversion(name: str) -> str:
    raw = _RAW[name]
    text = ""
    value = f"((const {raw} *)base)[at]"
    if name in _SMALL:
        m, e, infinities = _SMALL[name]
        holes = {"@D@": name, "@M@": str(m), "@E@": str(e), "@I@": str(infinities)}
        for template in (_WIDEN, _NARROW):
            part = template
            for hole, filling in holes.items():
                part = part.replace(hole, filling)
            text += part
        load, store = f"@SYM@_widen_{name}({value})", f"({raw})@SYM@_narrow_{name}(v)"
    else:
        load, store = value, f"({raw})v"
    kind = "int64_t" if name.startswith("int") else "double"
    return text + (
        f"\nstatic inline {kind} @SYM@_load_{name}(const void *base, int64_t at) {{ return {load}; }}\n"
        f"static inline void @SYM@_store_{name}(void *base, int64_t at, {kind} v)"
        f" {{ (({raw} *)base)[at] = {store}; }}\n"
    )
