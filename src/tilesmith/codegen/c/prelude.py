"""The C prelude: vectors, loads and stores with conversion, in GNU C that gcc and clang both take, without a header.

Everything is named ``ts_``. ``ts_vf`` is a vector of ``TS_LANES`` fp32, ``ts_vi`` and ``ts_vu`` its integers.

==============================  ================================================================================
``ts_load_D(p)``                one vector from ``TS_LANES`` unaligned elements of dtype ``D`` (fp32, bf16, fp16)
``ts_store_D(p, v)``            the reverse, rounded to nearest even; a NaN stays a NaN
``ts_load_n_D(p, n)``           the first ``n`` lanes (0 to ``TS_LANES``); the others are 0 and not touched
``ts_store_n_D(p, v, n)``       the first ``n`` lanes; nothing behind them is written
``ts_get_D(p)``, ``ts_put_D``   one element as float, from float (also fp8e4m3, fp8e5m2)
``ts_dot_bf16(acc, a, b)``      ``acc[i] += a[2i]*b[2i] + a[2i+1]*b[2i+1]`` (targets with ``bf16_dot``)
``ts_pair_bf16(p)``             two bf16 at ``p`` in every lane; ``ts_last_bf16(p)``: one bf16 and a zero
``ts_splat(f)``, ``ts_select``  a float in every lane; ``mask ? a : b`` by lanes
==============================  ================================================================================
"""

from __future__ import annotations

from tilesmith.codegen.c.scalar import float_conversions
from tilesmith.targets.target import CpuTarget


def c_prelude(target: CpuTarget) -> str:
    """The prelude for ``target``; the same text for every kernel of one target."""
    width = target.vector_bytes
    if width not in (16, 32, 64):
        raise ValueError(f"vectors of {width} bytes; the C prelude knows 16, 32 and 64")
    parts = [_TYPES.replace("@VB@", str(width)), float_conversions() + _LOADS, _vectors(target), _tails(target)]
    if target.bf16_dot:
        parts.append(_BF16_DOT)
    return "\n".join(parts)


def long_rounding(dtype: str, target: CpuTarget) -> bool:
    """Whether a vector is rounded to ``dtype`` by more than one instruction."""
    return (dtype == "bf16" and not _rounds_bf16(target)) or (dtype == "fp16" and not target.fp16_convert)


def _rounds_bf16(target: CpuTarget) -> bool:
    return target.bf16_dot and target.vector_bytes == 64


_TYPES = r"""#define TS_LANES (@VB@ / 4)
#define TS_INLINE static inline __attribute__((always_inline, unused))
#define TS_NOINLINE static __attribute__((noinline, unused))
#define TS_PREFETCH(p) __builtin_prefetch((const void *)(p))
#define TS_OPAQUE(p) __asm__("" : "+r"(p)) /* forget what is known of p: loads are not carried from turn to turn */
typedef __INT64_TYPE__ ts_i64;
typedef __UINT64_TYPE__ ts_u64;
typedef __UINTPTR_TYPE__ ts_uptr;
typedef unsigned char ts_u8 __attribute__((may_alias));
typedef unsigned short ts_u16 __attribute__((may_alias));
typedef unsigned int ts_u32 __attribute__((may_alias));
typedef float ts_f32 __attribute__((may_alias));
typedef double ts_f64 __attribute__((may_alias));
typedef float ts_vf __attribute__((vector_size(@VB@)));
typedef int ts_vi __attribute__((vector_size(@VB@)));
typedef unsigned int ts_vu __attribute__((vector_size(@VB@)));
typedef unsigned short ts_vh __attribute__((vector_size(@VB@ / 2)));
typedef float ts_vf_at __attribute__((vector_size(@VB@), aligned(1), may_alias));
typedef int ts_vi_at __attribute__((vector_size(@VB@), aligned(1), may_alias));
typedef unsigned short ts_vh_at __attribute__((vector_size(@VB@ / 2), aligned(1), may_alias));
"""

_LOADS = """\
/* f - 0 is f for every f, -0 and NaN included, so that compilers leave the broadcast alone; 0 + f is not. */
TS_INLINE ts_vf ts_splat(float f) { return f - (ts_vf){0}; }
TS_INLINE ts_vf ts_select(ts_vi mask, ts_vf a, ts_vf b) {
  return (ts_vf)(((ts_vi)a & mask) | ((ts_vi)b & ~mask));
}
TS_INLINE ts_vf ts_load_fp32(const void *p) { return *(const ts_vf_at *)p; }
TS_INLINE void ts_store_fp32(void *p, ts_vf v) { *(ts_vf_at *)p = v; }
TS_INLINE ts_vf ts_load_bf16(const void *p) {
  return (ts_vf)(__builtin_convertvector(*(const ts_vh_at *)p, ts_vu) << 16);
}
"""

_ROUND_BF16 = r"""TS_INLINE ts_vh ts_narrow_bf16(ts_vf v) {
  ts_vu u = (ts_vu)v, number = (ts_vu)(v == v), up = (u >> 16 & 1u) + 0x7fffu;
  ts_vu r = (u + (up & number)) | (0x400000u & ~number); /* a NaN is not rounded up, but made quiet */
  return __builtin_convertvector(r >> 16, ts_vh);
}
"""

# NOTE: the instruction takes subnormal inputs as 0 and flushes subnormal results, as vdpbf16ps does.
_ROUND_BF16_X86 = r"""TS_INLINE ts_vh ts_narrow_bf16(ts_vf v) {
  ts_vh h;
  __asm__("vcvtneps2bf16 %1, %0" : "=v"(h) : "v"(v));
  return h;
}
"""

_CONVERT_FP16 = r"""#if defined(__aarch64__)
TS_INLINE ts_vf ts_load_fp16(const void *p) {
  ts_vh h = *(const ts_vh_at *)p;
  ts_vf v;
  __asm__("fcvtl %0.4s, %1.4h" : "=w"(v) : "w"(h));
  return v;
}
TS_INLINE ts_vh ts_narrow_fp16(ts_vf v) {
  ts_vh h;
  __asm__("fcvtn %0.4h, %1.4s" : "=w"(h) : "w"(v));
  return h;
}
#else
TS_INLINE ts_vf ts_load_fp16(const void *p) {
  ts_vh h = *(const ts_vh_at *)p;
  ts_vf v;
  __asm__("vcvtph2ps %1, %0" : "=v"(v) : "v"(h));
  return v;
}
TS_INLINE ts_vh ts_narrow_fp16(ts_vf v) {
  ts_vh h;
  __asm__("vcvtps2ph $0, %1, %0" : "=v"(h) : "v"(v));
  return h;
}
#endif
"""

_CONVERT_FP16_SLOW = r"""TS_NOINLINE ts_vf ts_load_fp16(const void *p) {
  ts_vf v;
  for (int i = 0; i < TS_LANES; i++) v[i] = ts_get_fp16((const char *)p + 2 * i);
  return v;
}
TS_NOINLINE ts_vh ts_narrow_fp16(ts_vf v) {
  ts_vh h;
  for (int i = 0; i < TS_LANES; i++) h[i] = (unsigned short)ts_narrow(v[i], 5, 10, 15, 1);
  return h;
}
"""

_STORES = r"""TS_INLINE void ts_store_bf16(void *p, ts_vf v) { *(ts_vh_at *)p = ts_narrow_bf16(v); }
TS_INLINE void ts_store_fp16(void *p, ts_vf v) { *(ts_vh_at *)p = ts_narrow_fp16(v); }
"""

# 8-byte vectors of 16-bit lanes have no register of their own on x86, so 128-bit targets convert through scalars there.
_CONVERT_FP16_16 = "#if defined(__aarch64__)\n" + _CONVERT_FP16.split("#else")[0].split("\n", 1)[1]


def _vectors(target: CpuTarget) -> str:
    rounding = _ROUND_BF16_X86 if _rounds_bf16(target) else _ROUND_BF16
    if not target.fp16_convert:
        halves = _CONVERT_FP16_SLOW
    elif target.vector_bytes == 16:
        halves = _CONVERT_FP16_16 + "#else\n" + _CONVERT_FP16_SLOW + "#endif\n"
    else:
        halves = _CONVERT_FP16
    return rounding + halves + _STORES


_TAILS_MASKED = r"""TS_INLINE unsigned short ts_mask(int n) { return (unsigned short)((1u << n) - 1); }
TS_INLINE ts_vf ts_load_n_fp32(const void *p, int n) {
  ts_vf v;
  __asm__("vmovups %1, %0%{%2%}%{z%}" : "=v"(v) : "m"(*(const ts_vf_at *)p), "Yk"(ts_mask(n)));
  return v;
}
TS_INLINE void ts_store_n_fp32(void *p, ts_vf v, int n) {
  __asm__("vmovups %1, %0%{%2%}" : "+m"(*(ts_vf_at *)p) : "v"(v), "Yk"(ts_mask(n)));
}
TS_INLINE ts_vh ts_load_n_half(const void *p, int n) {
  ts_vh v;
  __asm__("vmovdqu16 %1, %0%{%2%}%{z%}" : "=v"(v) : "m"(*(const ts_vh_at *)p), "Yk"(ts_mask(n)));
  return v;
}
TS_INLINE void ts_store_n_half(void *p, ts_vh v, int n) {
  __asm__("vmovdqu16 %1, %0%{%2%}" : "+m"(*(ts_vh_at *)p) : "v"(v), "Yk"(ts_mask(n)));
}
"""

_TAILS_LOOPS = r"""TS_INLINE ts_vf ts_load_n_fp32(const void *p, int n) {
  ts_vf v = {0};
  __builtin_memcpy(&v, p, (unsigned)n * 4u);
  return v;
}
TS_INLINE void ts_store_n_fp32(void *p, ts_vf v, int n) { __builtin_memcpy(p, &v, (unsigned)n * 4u); }
TS_INLINE ts_vh ts_load_n_half(const void *p, int n) {
  ts_vh v = {0};
  __builtin_memcpy(&v, p, (unsigned)n * 2u);
  return v;
}
TS_INLINE void ts_store_n_half(void *p, ts_vh v, int n) { __builtin_memcpy(p, &v, (unsigned)n * 2u); }
"""

_TAILS_HALVES = r"""TS_INLINE ts_vf ts_load_n_bf16(const void *p, int n) {
  ts_vh h = ts_load_n_half(p, n);
  return ts_load_bf16(&h);
}
TS_INLINE ts_vf ts_load_n_fp16(const void *p, int n) {
  ts_vh h = ts_load_n_half(p, n);
  return ts_load_fp16(&h);
}
TS_INLINE void ts_store_n_bf16(void *p, ts_vf v, int n) { ts_store_n_half(p, ts_narrow_bf16(v), n); }
TS_INLINE void ts_store_n_fp16(void *p, ts_vf v, int n) { ts_store_n_half(p, ts_narrow_fp16(v), n); }
"""


def _tails(target: CpuTarget) -> str:
    return (_TAILS_MASKED if target.vector_bytes == 64 else _TAILS_LOOPS) + _TAILS_HALVES


_BF16_DOT = r"""TS_INLINE ts_vf ts_dot_bf16(ts_vf acc, ts_vi a, ts_vi b) {
  __asm__("vdpbf16ps %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
  return acc;
}
TS_INLINE ts_vi ts_pair_bf16(const void *p) {
  int q;
  __builtin_memcpy(&q, p, 4);
  return (ts_vi){0} + q;
}
TS_INLINE ts_vi ts_last_bf16(const void *p) { return (ts_vi){0} + (int)*(const ts_u16 *)p; }
"""
