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
``TS_TILE_BEGIN(m, b)``         lets this thread use tile registers (targets with ``bf16_tiles``): those below ``b``
                                have ``m`` rows, sums (16 fp32) or pixels (32 bf16), the others 16 rows of 16 pairs of
                                bf16. ``TS_TILE_END()`` gives them back.
``TS_TILE_ZERO(t)``             0 in register ``t``; ``TS_TILE_LOAD(t, p, step)`` reads its rows ``step`` bytes apart,
                                ``TS_TILE_STORE(t, p, step)`` writes them
``TS_TILE_DOT(t, a, b)``        ``t[m][n] += a[m][2k]*b[k][2n] + a[m][2k+1]*b[k][2n+1]`` for the 16 ``k``
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
    if target.bf16_tiles:
        parts.append(_TILES)
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

# NOTE: Linux lets a process use tile registers once it has asked (arch_prctl 0x1023 for state 18); the answer of the
# first thread is for all. The instructions are in assembly, which needs no flag of a compiler; ``TS_TILES`` says that
# the target has them. A processor takes and gives subnormal numbers as 0 here, as vdpbf16ps does. Without them the
# same is written in C, on the memory that ``ts_tiles *tiles`` in the caller names: so its kernels run everywhere.
_TILES = r"""typedef struct { ts_f32 of[16][16]; } ts_tiles;
#if defined(TS_TILES)
TS_NOINLINE void ts_tile_begin(int rows, int filters) {
  static volatile int asked;
  if (!asked) {
    long answer = 158;
    __asm__ volatile("syscall" : "+a"(answer) : "D"(0x1023L), "S"(18L) : "rcx", "r11", "memory");
    asked = 1;
  }
  struct { ts_u8 palette, start, none[14]; ts_u16 bytes[16]; ts_u8 rows[16]; } c = {1, 0, {0}, {0}, {0}};
  for (int i = 0; i < 8; i++) {
    c.bytes[i] = 64;
    c.rows[i] = (ts_u8)(i < filters ? rows : 16);
  }
  __asm__ volatile("ldtilecfg %0" : : "m"(c));
}
#define TS_TILE_BEGIN(rows, filters) (ts_tile_begin(rows, filters), (void)tiles)
#define TS_TILE_END() __asm__ volatile("tilerelease" ::: "memory")
#define TS_TILE_ZERO(t) __asm__ volatile("tilezero %%tmm" #t : :)
#define TS_TILE_LOAD(t, p, step) \
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t : : "r"(p), "r"((ts_i64)(step)) : "memory")
#define TS_TILE_STORE(t, p, step) \
  __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" : : "r"(p), "r"((ts_i64)(step)) : "memory")
#define TS_TILE_DOT(t, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #t : :)
#else
TS_NOINLINE void ts_tile_dot(ts_f32 (*t)[16], ts_f32 (*a)[16], ts_f32 (*b)[16]) {
  for (int m = 0; m < 16; m++)
    for (int n = 0; n < 16; n++)
      for (int k = 0; k < 32; k++)
        t[m][n] += ts_get_bf16((ts_u16 *)a[m] + k) * ts_get_bf16((ts_u16 *)b[k / 2] + 2 * n + k % 2);
}
#define TS_TILE_BEGIN(rows, filters) \
  do { for (int i = 0; i < 8; i++) ts_tile_rows[i] = i < (filters) ? (rows) : 16; } while (0)
#define TS_TILE_END() (void)0
#define TS_TILE_ZERO(t) __builtin_memset(tiles + (t), 0, sizeof(ts_tiles))
#define TS_TILE_LOAD(t, p, step) ts_tile_move(tiles[t].of, (char *)(p), step, ts_tile_rows[t], 0)
#define TS_TILE_STORE(t, p, step) ts_tile_move(tiles[t].of, (char *)(p), step, ts_tile_rows[t], 1)
#define TS_TILE_DOT(t, a, b) ts_tile_dot(tiles[t].of, tiles[a].of, tiles[b].of)
static int ts_tile_rows[8] __attribute__((unused));
TS_NOINLINE void ts_tile_move(ts_f32 (*t)[16], char *p, ts_i64 step, int rows, int back) {
  for (int i = 0; i < rows; i++) {
    char *row = (char *)t[i], *place = p + i * step;
    __builtin_memcpy(back ? place : row, back ? row : place, 64);
  }
}
#endif
"""
