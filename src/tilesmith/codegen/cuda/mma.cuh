// Instructions that every arch since sm_80 has: asynchronous copies, ldmatrix, mma.sync. Source: PTX ISA 8.
// No headers are included: a source compiles alone. Kernels of this prelude live in its namespace too, so that one
// compile unit can hold other preludes beside it.
namespace ts_mma {
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
#define TS_MMA_DEVICE static __device__ __forceinline__
#define TS_MMA_METHOD __device__ __forceinline__
#define TS_MMA_CONSTANT static __host__ __device__ constexpr // functions of constants

TS_MMA_DEVICE u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

// Where kernels may begin before the one ahead of them has ended: waits for its end. Every block has to.
TS_MMA_DEVICE void wait_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The kernel behind may begin once every block has come here, and not only once one after the other has ended: its
// blocks stand ready when this kernel's last ones leave. It pays for families whose blocks are small (first layers,
// narrow groups, phases: 2-6 % in rows of calls) and costs others as much (`benchmarks/gpu/probes/sooner.py`).
TS_MMA_DEVICE void launch_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// --- asynchronous copies: what lies beyond `valid` bytes becomes zero, and is not read ---
template <int BYTES> TS_MMA_DEVICE void copy_async(u32 to, const void *from, int valid) {
  if constexpr (BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(BYTES), "r"(valid)
                 : "memory");
}
// No load moves across.
TS_MMA_DEVICE void hold_loads() { asm volatile("" ::: "memory"); }
// What is computed from `v` is computed behind this line: in a loop, anew each time.
TS_MMA_DEVICE void compute_anew(u32 &v) { asm volatile("" : "+r"(v)); }
TS_MMA_DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until all but the last N groups of copies have landed.
template <int N> TS_MMA_DEVICE void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// --- tiles of 8x8 16-bit elements from shared memory ---
template <bool TRANSPOSED> TS_MMA_DEVICE void load_tiles(u32 (&r)[4], u32 from) {
  if constexpr (TRANSPOSED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from)
                 : "memory");
}
TS_MMA_DEVICE u32 shared_word(u32 from) {
  u32 v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(from) : "memory");
  return v;
}
TS_MMA_DEVICE float4 shared_floats4(u32 from) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(from)
               : "memory");
  return v;
}
TS_MMA_DEVICE void shared_store16(u32 to, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
TS_MMA_DEVICE void shared_store8(u32 to, float a, float b) {
  asm volatile("st.shared.v2.f32 [%0], {%1,%2};" ::"r"(to), "f"(a), "f"(b) : "memory");
}
TS_MMA_DEVICE void shared_store8(u32 to, int a, int b) {
  asm volatile("st.shared.v2.s32 [%0], {%1,%2};" ::"r"(to), "r"(a), "r"(b) : "memory");
}
// One or two bytes, of which `valid` are read.
template <int BYTES> TS_MMA_DEVICE u32 load_bits(const void *from, int valid) {
  return BYTES == 2 && valid == 2 ? __ldg((const u16 *)from) : __ldg((const unsigned char *)from);
}

// --- elements, as bits; a Value is what epilogues compute in ---
struct bf16 {
  u16 bits;
};
struct fp16 {
  u16 bits;
};
// fp32 that the tensor cores shall see rounded.
struct tf32 {
  float v;
};
struct int8 {
  signed char v;
};
struct fp8e4m3 {
  unsigned char bits;
};
struct fp8e5m2 {
  unsigned char bits;
};
TS_MMA_DEVICE float widened(bf16 v) { return __uint_as_float((u32)v.bits << 16); }
TS_MMA_DEVICE float widened(fp16 v) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v.bits));
  return f;
}
TS_MMA_DEVICE float widened(float v) { return v; }
TS_MMA_DEVICE float widened(tf32 v) { return v.v; }
TS_MMA_DEVICE i64 widened(int8 v) { return v.v; }
TS_MMA_DEVICE i64 widened(int v) { return v; }
// Four fp8 as two pairs of fp16, which holds them all.
TS_MMA_DEVICE void widen_pairs(fp8e4m3, u32 v, u32 &low, u32 &high) {
  asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.rn.f16x2.e4m3x2 %0, l; cvt.rn.f16x2.e4m3x2 %1, h; }"
      : "=r"(low), "=r"(high)
      : "r"(v));
}
TS_MMA_DEVICE void widen_pairs(fp8e5m2, u32 v, u32 &low, u32 &high) {
  low = __byte_perm(v, 0, 0x1404), high = __byte_perm(v, 0, 0x3424);
}
template <typename T> TS_MMA_DEVICE float widened_byte(T v) {
  u32 low, high;
  widen_pairs(v, v.bits, low, high);
  return widened(fp16{(u16)low});
}
TS_MMA_DEVICE float widened(fp8e4m3 v) { return widened_byte(v); }
TS_MMA_DEVICE float widened(fp8e5m2 v) { return widened_byte(v); }
TS_MMA_DEVICE void narrow(bf16 &to, float v) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(v)); }
TS_MMA_DEVICE void narrow(fp16 &to, float v) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(v)); }
TS_MMA_DEVICE void narrow(float &to, float v) { to = v; }
TS_MMA_DEVICE void narrow(int &to, i64 v) { to = (int)v; }
// The instructions saturate; what rounds to beyond the largest number shall be NaN (e4m3) or Inf (e5m2).
TS_MMA_DEVICE void narrow(fp8e4m3 &to, float v) {
  u16 two;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(two) : "f"(0.0f), "f"(v));
  to.bits = fabsf(v) > 464.0f ? two | 0x7f : two;
}
TS_MMA_DEVICE void narrow(fp8e5m2 &to, float v) {
  u16 two;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(two) : "f"(0.0f), "f"(v));
  to.bits = fabsf(v) >= 61440.0f ? (two & 0x80) | 0x7c : two;
}
TS_MMA_DEVICE float added_product(float a, float b, float c) { return fmaf(a, b, c); }
TS_MMA_DEVICE i64 added_product(i64 a, i64 b, i64 c) { return a * b + c; }

// N neighbouring elements that move at once, aligned to their size.
template <typename T, int N> struct __align__(sizeof(T) * N) Pack {
  T v[N];
};

// Two neighbours at once, with one conversion.
TS_MMA_DEVICE Pack<bf16, 2> narrowed(bf16, float a, float b) {
  u32 v;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(b), "f"(a));
  return *(const Pack<bf16, 2> *)&v;
}
TS_MMA_DEVICE Pack<fp16, 2> narrowed(fp16, float a, float b) {
  u32 v;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(b), "f"(a));
  return *(const Pack<fp16, 2> *)&v;
}
TS_MMA_DEVICE Pack<float, 2> narrowed(float, float a, float b) { return {{a, b}}; }
// The same of max(v, 0), by the same instruction; a NaN stays one.
TS_MMA_DEVICE Pack<bf16, 2> narrowed_relu(bf16, float a, float b) {
  u32 v;
  asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(b), "f"(a));
  return *(const Pack<bf16, 2> *)&v;
}
TS_MMA_DEVICE Pack<fp16, 2> narrowed_relu(fp16, float a, float b) {
  u32 v;
  asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(b), "f"(a));
  return *(const Pack<fp16, 2> *)&v;
}
TS_MMA_DEVICE Pack<float, 2> narrowed_relu(float, float a, float b) { return {{a < 0.0f ? 0.0f : a, b < 0.0f ? 0.0f : b}}; }

// --- products of a warp: 16 x 8 sums += 16 x K times K x 8, where K elements are 32 bytes ---
TS_MMA_DEVICE void multiply(bf16, float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
TS_MMA_DEVICE void multiply(fp16, float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
TS_MMA_DEVICE void multiply(tf32, float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
TS_MMA_DEVICE void multiply(int8, int (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// The tensor cores cut what TF32 does not hold; this rounds.
TS_MMA_DEVICE void round_to_tf32(u32 &v) { asm("cvt.rna.tf32.f32 %0, %0;" : "+r"(v)); }

// n / d for 0 <= n < 2^31 by a multiplication: q = n * m >> s (Granlund and Montgomery, 1994).
TS_MMA_DEVICE int divided(int n, u32 m, u32 s) { return (int)((u64)(u32)n * m >> s); }
TS_MMA_DEVICE int smaller(int a, int b) { return a < b ? a : b; }
TS_MMA_DEVICE int larger(int a, int b) { return a > b ? a : b; }
} // namespace ts_mma
