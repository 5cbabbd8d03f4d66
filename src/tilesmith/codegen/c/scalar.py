"""Scalar conversions in C, one element at a time, rounded once: to and from float in the prelude, double elsewhere."""

from __future__ import annotations

from tilesmith.codegen.rounding import rounding_text

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

# Part of the prelude, before what it says of vectors.
_FLOAT = r"""TS_INLINE float ts_from_bits(unsigned u) {
  float f;
  __builtin_memcpy(&f, &u, 4);
  return f;
}
TS_INLINE unsigned ts_bits(float f) {
  unsigned u;
  __builtin_memcpy(&u, &f, 4);
  return u;
}
/* Any format of sign, e exponent bits with this bias, m fraction bits; inf says that the top exponent is not finite. */
TS_INLINE float ts_widen(unsigned h, int e, int m, int bias, int inf) {
  unsigned sign = (h >> (e + m) & 1u) << 31, ex = h >> m & ((1u << e) - 1), fr = h & ((1u << m) - 1);
  if (inf ? ex == (1u << e) - 1 : (h & ((1u << (e + m)) - 1)) == (1u << (e + m)) - 1)
    return ts_from_bits(sign | 0x7f800000u | fr << (23 - m) | (inf ? 0u : 0x400000u));
  if (ex == 0) { /* subnormal: fr * 2^(1 - bias - m), exact in fp32 */
    float f = (float)(int)fr * ts_from_bits((unsigned)(127 + 1 - bias - m) << 23);
    return sign ? -f : f;
  }
  return ts_from_bits(sign | (ex + 127u - (unsigned)bias) << 23 | fr << (23 - m));
}
/* To nearest, ties to even. Without infinities what is too large becomes NaN, as in the e4m3fn definition. */
TS_INLINE unsigned ts_narrow(float f, int e, int m, int bias, int inf) {
  unsigned u = ts_bits(f), a = u & 0x7fffffffu, sign = (u >> 31) << (e + m), top = ((1u << e) - 1) << m, r;
  unsigned none = inf ? top : top | ((1u << m) - 1);
  if (a > 0x7f800000u) return sign | (inf ? top | 1u << (m - 1) : none);
  if (a == 0x7f800000u) return sign | none;
  int ex = (int)(a >> 23) - 127 + bias;
  if (ex <= 0) { /* subnormal: let the fp32 adder round at 2^(1 - bias - m) */
    float one = ts_from_bits((unsigned)(127 + 1 - bias - m + 23) << 23);
    return sign | (ts_bits(ts_from_bits(a) + one) - ts_bits(one));
  }
  r = a - ((unsigned)(127 - bias) << 23);
  r = (r + ((1u << (22 - m)) - 1) + (r >> (23 - m) & 1u)) >> (23 - m);
  return sign | (r >= none ? none : r);
}
TS_INLINE float ts_get_fp32(const void *p) {
  float f;
  __builtin_memcpy(&f, p, 4);
  return f;
}
TS_INLINE void ts_put_fp32(void *p, float f) { __builtin_memcpy(p, &f, 4); }
TS_INLINE float ts_get_fp64(const void *p) { return (float)*(const ts_f64 *)p; }
TS_INLINE void ts_put_fp64(void *p, float f) { *(ts_f64 *)p = f; }
TS_INLINE float ts_get_bf16(const void *p) { return ts_from_bits((unsigned)*(const ts_u16 *)p << 16); }
TS_INLINE unsigned ts_round_bf16(float f) {
  unsigned u = ts_bits(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return u >> 16 | 0x40u;
  return (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
}
TS_INLINE void ts_put_bf16(void *p, float f) { *(ts_u16 *)p = (unsigned short)ts_round_bf16(f); }
"""


def float_conversions() -> str:
    """``ts_get_D(p)`` and ``ts_put_D(p, float)`` for each floating-point dtype ``D``."""
    text = _FLOAT
    for name in ("fp16", "fp8e5m2", "fp8e4m3"):
        m, e, inf = _SMALL[name]
        bits, kind = ("ts_u16", "unsigned short") if name == "fp16" else ("ts_u8", "unsigned char")
        form = f"{e}, {m}, {(1 << (e - 1)) - 1}, {inf}"
        text += (
            f"TS_INLINE float ts_get_{name}(const void *p) {{ return ts_widen(*(const {bits} *)p, {form}); }}\n"
            f"TS_INLINE void ts_put_{name}(void *p, float f) {{ *({bits} *)p = ({kind})ts_narrow(f, {form}); }}\n"
        )
    return text


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
@ROUND@}
"""


def conversions(dtypes: set[str]) -> str:
    """``@SYM@_load_D(base, index)`` and ``@SYM@_store_D(base, index, value)`` for each of ``dtypes``, in order.

    Integers are loaded as ``int64_t``, everything else as ``double``.
    """
    return "".join(_conversion(name) for name in sorted(dtypes))


def _conversion(name: str) -> str:
    raw = _RAW[name]
    text = ""
    value = f"((const {raw} *)base)[at]"
    if name in _SMALL:
        m, e, inf = _SMALL[name]
        text = _WIDEN + _NARROW.replace("@ROUND@", rounding_text("uint64_t", "uint32_t", "u"))
        for hole, filling in (("@D@", name), ("@M@", str(m)), ("@E@", str(e)), ("@I@", str(inf))):
            text = text.replace(hole, filling)
        load, store = f"@SYM@_widen_{name}({value})", f"({raw})@SYM@_narrow_{name}(v)"
    else:
        load, store = value, f"({raw})v"
    kind = "int64_t" if name.startswith("int") else "double"
    return text + (
        f"\nstatic inline {kind} @SYM@_load_{name}(const void *base, int64_t at) {{ return {load}; }}\n"
        f"static inline void @SYM@_store_{name}(void *base, int64_t at, {kind} v)"
        f" {{ (({raw} *)base)[at] = {store}; }}\n"
    )
