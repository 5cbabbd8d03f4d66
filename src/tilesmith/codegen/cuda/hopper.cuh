// Instructions of sm_90a that CUDA C++ has no words for: bulk tensor copies, wgmma. Source: PTX ISA 8.
// No headers are included: a source compiles alone.
typedef unsigned short ts_u16;
typedef unsigned int ts_u32;
typedef unsigned long long ts_u64;
typedef long long ts_i64;
struct __align__(64) ts_map {
  char bytes[128];
};
#define TS_DEVICE static __device__ __forceinline__

// n / d for 0 <= n < 2^31; ``by`` has a multiplier in its low half and a shift in its high one.
// Reference: Granlund and Montgomery, Division by Invariant Integers using Multiplication, 1994.
TS_DEVICE int ts_quotient(int n, ts_u64 by) { return (int)((ts_u64)(ts_u32)n * (ts_u32)by >> (ts_u32)(by >> 32)); }
// Reads ``v`` and does nothing with it: what it came from is in the caches.
TS_DEVICE void ts_touch(ts_u32 v) { asm volatile("" ::"r"(v)); }

TS_DEVICE ts_u32 ts_shared_address(const void *p) { return (ts_u32)__cvta_generic_to_shared(p); }

// --- barriers ---
TS_DEVICE void ts_arrive(ts_u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
TS_DEVICE void ts_wait(ts_u32 barrier, ts_u32 phase) {
#ifdef TS_WAIT_LIMIT // for bringing up kernels: a wait that never ends becomes an error
  const long long start = clock64();
  for (ts_u32 ok = 0; !ok;) {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(ok)
                 : "r"(barrier), "r"(phase)
                 : "memory");
    if (clock64() - start > TS_WAIT_LIMIT) __trap();
  }
#else
  asm volatile("{ .reg .pred p;\n"
               "again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
               "@p bra done;\n bra again;\n done: }" ::"r"(barrier),
               "r"(phase)
               : "memory");
#endif
}
TS_DEVICE void ts_named_arrive(ts_u32 id, ts_u32 threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Whether `flag` holds in any of the threads; a barrier too.
TS_DEVICE bool ts_named_any(ts_u32 id, ts_u32 threads, bool flag) {
  ts_u32 any;
  asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %3, 0; barrier.cta.red.or.pred q, %1, %2, p; selp.u32 %0, 1, 0, q; }"
               : "=r"(any)
               : "r"(id), "r"(threads), "r"((ts_u32)flag)
               : "memory");
  return any != 0;
}

// --- clusters ---
TS_DEVICE ts_u32 ts_cluster_rank() {
  ts_u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
TS_DEVICE void ts_cluster_arrive() { asm volatile("barrier.cluster.arrive.aligned;" ::: "memory"); }
TS_DEVICE void ts_cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }
TS_DEVICE ts_u32 ts_peer_address(ts_u32 address, ts_u32 rank) {
  ts_u32 peer;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(peer) : "r"(address), "r"(rank));
  return peer;
}
// Bytes of shared memory to a peer's, whose barrier counts them.
TS_DEVICE void ts_peer_copy(ts_u32 to, ts_u32 from, ts_u32 bytes, ts_u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "r"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
TS_DEVICE void ts_peer_arrive(ts_u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// --- bulk tensor copies ---
TS_DEVICE void ts_map_prefetch(const ts_map *map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }
TS_DEVICE void ts_load3(ts_u32 to, const ts_map *map, ts_u32 barrier, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%3,%4,%5}], [%2];" ::"r"(to),
               "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
               : "memory");
}
// The same for what is read once: it is the first to leave L2.
TS_DEVICE void ts_load3_once(ts_u32 to, const ts_map *map, ts_u32 barrier, int x, int y, int z) {
  asm volatile("{ .reg .b64 first; createpolicy.fractional.L2::evict_first.b64 first, 1.0;\n"
               "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
               "[%0], [%1, {%3,%4,%5}], [%2], first; }" ::"r"(to),
               "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
               : "memory");
}
// Into the same place of all the blocks of a cluster that `blocks` has bits for; each one's barrier counts the bytes.
TS_DEVICE void ts_load3_cast(ts_u32 to, const ts_map *map, ts_u32 barrier, int x, int y, int z, ts_u32 blocks) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
               "[%0], [%1, {%3,%4,%5}], [%2], %6;" ::"r"(to),
               "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "h"((ts_u16)blocks)
               : "memory");
}
// Offsets are those of a filter tap from the window's lower corner: W in the low 8 bits, then H, then D.
TS_DEVICE void ts_load_pixels4(ts_u32 to, const ts_map *map, ts_u32 barrier, int c, int w, int h, int n, ts_u32 tap) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%3,%4,%5,%6}], [%2], {%7,%8};" ::"r"(to),
               "l"(map), "r"(barrier), "r"(c), "r"(w), "r"(h), "r"(n), "h"((ts_u16)(tap & 255)),
               "h"((ts_u16)(tap >> 8 & 255))
               : "memory");
}
TS_DEVICE void ts_load_pixels5(ts_u32 to, const ts_map *map, ts_u32 barrier, int c, int w, int h, int d, int n,
                               ts_u32 tap) {
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%3,%4,%5,%6,%7}], [%2], {%8,%9,%10};" ::"r"(to),
               "l"(map), "r"(barrier), "r"(c), "r"(w), "r"(h), "r"(d), "r"(n), "h"((ts_u16)(tap & 255)),
               "h"((ts_u16)(tap >> 8 & 255)), "h"((ts_u16)(tap >> 16 & 255))
               : "memory");
}
TS_DEVICE void ts_load4(ts_u32 to, const ts_map *map, ts_u32 barrier, int x, int y, int z, int w) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%3,%4,%5,%6}], [%2];" ::"r"(to),
               "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w)
               : "memory");
}
TS_DEVICE void ts_load5(ts_u32 to, const ts_map *map, ts_u32 barrier, int x, int y, int z, int w, int v) {
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%3,%4,%5,%6,%7}], [%2];" ::"r"(to),
               "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v)
               : "memory");
}
TS_DEVICE void ts_store5(const ts_map *map, ts_u32 from, int x, int y, int z, int w, int v) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2,%3,%4,%5,%6}], [%1];" ::"l"(map),
               "r"(from), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v)
               : "memory");
}
TS_DEVICE void ts_store3(const ts_map *map, ts_u32 from, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2,%3,%4}], [%1];" ::"l"(map), "r"(from),
               "r"(x), "r"(y), "r"(z)
               : "memory");
}
TS_DEVICE void ts_store4(const ts_map *map, ts_u32 from, int x, int y, int z, int w) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2,%3,%4,%5}], [%1];" ::"l"(map),
               "r"(from), "r"(x), "r"(y), "r"(z), "r"(w)
               : "memory");
}

// --- kernels that begin before the one ahead of them has ended ---
TS_DEVICE void ts_launch_next() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
TS_DEVICE void ts_wait_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// --- products of a warpgroup ---
TS_DEVICE void ts_product_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
TS_DEVICE void ts_product_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> TS_DEVICE void ts_product_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
// Before the first product and behind the last wait: between them, sums stay in the registers that products write. The
// compiler does not know that products run on. NOTE: sums of fp32 results, which leave as words, it has carried through
// the loop as words, copied while products were under way.
TS_DEVICE void ts_sums_begin(float &sum) { asm volatile("" : "=f"(sum)); }
TS_DEVICE void ts_sums_begin(int &sum) { asm volatile("" : "=r"(sum)); }
template <typename Sums, int N> TS_DEVICE void ts_sums_begin(Sums (&sums)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) ts_sums_begin(sums[i]);
}
TS_DEVICE void ts_sums_ready(float &sum) { asm volatile("" : "+f"(sum)); }
TS_DEVICE void ts_sums_ready(int &sum) { asm volatile("" : "+r"(sum)); }
template <typename Sums, int N> TS_DEVICE void ts_sums_ready(Sums (&sums)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) ts_sums_ready(sums[i]);
}
// Matrix descriptor: address, leading and stride byte offsets (all over 16), and the swizzle's code.
TS_DEVICE constexpr ts_u64 ts_descriptor(ts_u32 leading, ts_u32 stride, ts_u32 swizzle) {
  return (ts_u64)(swizzle == 128 ? 1 : swizzle == 64 ? 2 : 3) << 62 | (ts_u64)(stride >> 4) << 32 |
         (ts_u64)(leading >> 4) << 16;
}
TS_DEVICE ts_u64 ts_at(ts_u64 descriptor, ts_u32 address) { return descriptor | (ts_u64)((address & 0x3ffff) >> 4); }

// --- tiles of 8x8 elements between registers and shared memory ---
TS_DEVICE void ts_put4(ts_u32 to, ts_u32 a, ts_u32 b, ts_u32 c, ts_u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(a), "r"(b), "r"(c),
               "r"(d)
               : "memory");
}
TS_DEVICE void ts_put2(ts_u32 to, ts_u32 a, ts_u32 b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1,%2};" ::"r"(to), "r"(a), "r"(b) : "memory");
}
TS_DEVICE void ts_put4_transposed(ts_u32 to, ts_u32 a, ts_u32 b, ts_u32 c, ts_u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}
TS_DEVICE void ts_put2_transposed(ts_u32 to, ts_u32 a, ts_u32 b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1,%2};" ::"r"(to), "r"(a), "r"(b) : "memory");
}
template <bool TRANSPOSED> TS_DEVICE void ts_get2(ts_u32 from, ts_u32 &a, ts_u32 &b) {
  if (TRANSPOSED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(a), "=r"(b) : "r"(from) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(a), "=r"(b) : "r"(from) : "memory");
}
template <bool TRANSPOSED> TS_DEVICE void ts_get4(ts_u32 from, ts_u32 &a, ts_u32 &b, ts_u32 &c, ts_u32 &d) {
  if (TRANSPOSED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "r"(from)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "r"(from)
                 : "memory");
}
TS_DEVICE ts_u32 ts_shared_load(ts_u32 from) {
  ts_u32 v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(from) : "memory");
  return v;
}
TS_DEVICE void ts_shared_store(ts_u32 to, ts_u32 v) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(v) : "memory");
}
TS_DEVICE uint4 ts_shared_load16(ts_u32 from) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(from)
               : "memory");
  return v;
}
TS_DEVICE void ts_shared_store4(ts_u32 to, const float *v) {
  asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(to), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3])
               : "memory");
}
TS_DEVICE void ts_shared_load4(ts_u32 from, float (&v)[4]) {
  asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
               : "r"(from)
               : "memory");
}

// --- 16-bit floats, as bits ---
struct ts_bf16 {
  ts_u16 bits;
};
struct ts_fp16 {
  ts_u16 bits;
};
TS_DEVICE float ts_float(ts_bf16 v) { return __uint_as_float((ts_u32)v.bits << 16); }
TS_DEVICE float ts_float(ts_fp16 v) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v.bits));
  return f;
}
TS_DEVICE float ts_float(float v) { return v; }
// Two floats as one register, the first in the low half.
TS_DEVICE ts_u32 ts_pack(ts_bf16, float low, float high) {
  ts_u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(r) : "f"(low), "f"(high));
  return r;
}
TS_DEVICE ts_u32 ts_pack(ts_fp16, float low, float high) {
  ts_u32 r;
  asm("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(r) : "f"(low), "f"(high));
  return r;
}
template <typename T> TS_DEVICE ts_u32 ts_pack(T, float low, float) { return __float_as_uint(low); } // never called
// A warp's sums of 16 rows and 16 columns (8, if not `two`) into shared memory, as `T`.
template <typename T, bool TRANSPOSED> TS_DEVICE void ts_put_sums(ts_u32 to, const float *v, bool two) {
  const ts_u32 a = ts_pack(T(), v[0], v[1]), b = ts_pack(T(), v[2], v[3]);
  if (two) {
    const ts_u32 c = ts_pack(T(), v[4], v[5]), d = ts_pack(T(), v[6], v[7]);
    if (TRANSPOSED) ts_put4_transposed(to, a, b, c, d);
    else ts_put4(to, a, b, c, d);
  } else {
    if (TRANSPOSED) ts_put2_transposed(to, a, b);
    else ts_put2(to, a, b);
  }
}
// And back.
TS_DEVICE void ts_unpack(ts_bf16, ts_u32 v, float &low, float &high) {
  low = __uint_as_float(v << 16), high = __uint_as_float(v & 0xffff0000u);
}
TS_DEVICE void ts_unpack(ts_fp16, ts_u32 v, float &low, float &high) {
  ts_fp16 a, b;
  a.bits = (ts_u16)v, b.bits = (ts_u16)(v >> 16);
  low = ts_float(a), high = ts_float(b);
}
template <typename T> TS_DEVICE void ts_unpack(T, ts_u32, float &, float &) {} // never called
template <typename T> TS_DEVICE void ts_add_pair(T, ts_u32 v, float *sums) {
  float low, high;
  ts_unpack(T(), v, low, high);
  sums[0] += low, sums[1] += high;
}
// Adds what `ts_put_sums` would store at the same place.
template <typename T, bool TRANSPOSED> TS_DEVICE void ts_add_stored(ts_u32 from, float *v, bool two) {
  ts_u32 a, b, c, d;
  if (two) {
    ts_get4<TRANSPOSED>(from, a, b, c, d);
    ts_add_pair(T(), c, v + 4), ts_add_pair(T(), d, v + 6);
  } else {
    ts_get2<TRANSPOSED>(from, a, b);
  }
  ts_add_pair(T(), a, v), ts_add_pair(T(), b, v + 2);
}
TS_DEVICE void ts_narrow(ts_bf16 *to, float v) {
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to->bits) : "f"(v));
}
TS_DEVICE void ts_narrow(ts_fp16 *to, float v) {
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to->bits) : "f"(v));
}
TS_DEVICE void ts_narrow(float *to, float v) { *to = v; }
TS_DEVICE void ts_load_pair(const ts_bf16 *from, float &low, float &high) {
  ts_unpack(ts_bf16(), *(const ts_u32 *)from, low, high);
}
TS_DEVICE void ts_load_pair(const ts_fp16 *from, float &low, float &high) {
  ts_unpack(ts_fp16(), *(const ts_u32 *)from, low, high);
}
TS_DEVICE void ts_load_pair(const float *from, float &low, float &high) {
  float2 v = *(const float2 *)from;
  low = v.x, high = v.y;
}
TS_DEVICE void ts_store_pair(ts_bf16 *to, float low, float high) { *(ts_u32 *)to = ts_pack(ts_bf16(), low, high); }
TS_DEVICE void ts_store_pair(ts_fp16 *to, float low, float high) { *(ts_u32 *)to = ts_pack(ts_fp16(), low, high); }
TS_DEVICE void ts_store_pair(float *to, float low, float high) { *(float2 *)to = make_float2(low, high); }
// A value that a store of this thread's warp has just written, past the first-level cache.
TS_DEVICE float ts_fresh(const ts_bf16 *from) {
  ts_bf16 v;
  asm volatile("ld.global.cv.b16 %0, [%1];" : "=h"(v.bits) : "l"(from) : "memory");
  return ts_float(v);
}
TS_DEVICE float ts_fresh(const ts_fp16 *from) {
  ts_fp16 v;
  asm volatile("ld.global.cv.b16 %0, [%1];" : "=h"(v.bits) : "l"(from) : "memory");
  return ts_float(v);
}
TS_DEVICE float ts_fresh(const float *from) {
  float v;
  asm volatile("ld.global.cv.f32 %0, [%1];" : "=f"(v) : "l"(from) : "memory");
  return v;
}

// --- bytes, and 32-bit integers ---
struct ts_e4m3 {
  unsigned char bits;
};
struct ts_e5m2 {
  unsigned char bits;
};
struct ts_int8 {
  signed char v;
};
TS_DEVICE float ts_float(ts_e5m2 v) {
  ts_fp16 wide;
  wide.bits = (ts_u16)(v.bits << 8);
  return ts_float(wide);
}
TS_DEVICE float ts_float(ts_e4m3 v) {
  ts_u32 two;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(two) : "h"((ts_u16)v.bits));
  ts_fp16 wide;
  wide.bits = (ts_u16)two;
  return ts_float(wide);
}
TS_DEVICE float ts_float(ts_int8 v) { return v.v; }
TS_DEVICE float ts_float(int v) { return (float)v; }
// Two values as neighbouring bytes. The instructions saturate; what rounds to beyond the largest number shall be NaN (e4m3)
// or Inf (e5m2), which is the next byte.
TS_DEVICE ts_u32 ts_bytes(ts_e4m3, float low, float high) {
  ts_u16 two;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(two) : "f"(high), "f"(low));
  return two + (fabsf(low) > 464.0f) + (fabsf(high) > 464.0f) * 256u;
}
TS_DEVICE ts_u32 ts_bytes(ts_e5m2, float low, float high) {
  ts_u16 two;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(two) : "f"(high), "f"(low));
  return two + (fabsf(low) >= 61440.0f) + (fabsf(high) >= 61440.0f) * 256u;
}
// To nearest even, saturated; a NaN becomes 0.
TS_DEVICE ts_u32 ts_bytes(ts_int8, float low, float high) {
  int a, b;
  asm("cvt.rni.sat.s8.f32 %0, %1;" : "=r"(a) : "f"(low));
  asm("cvt.rni.sat.s8.f32 %0, %1;" : "=r"(b) : "f"(high));
  return ((ts_u32)a & 0xff) | ((ts_u32)b & 0xff) << 8;
}
template <typename T> TS_DEVICE void ts_narrow(T *to, float v) {
  *(unsigned char *)to = (unsigned char)ts_bytes(T(), v, 0.0f);
}
template <typename T> TS_DEVICE void ts_store_pair(T *to, float low, float high) {
  *(ts_u16 *)to = (ts_u16)ts_bytes(T(), low, high);
}
TS_DEVICE void ts_narrow(int *to, int v) { *to = v; }
TS_DEVICE void ts_store_pair(int *to, int low, int high) { *(int2 *)to = make_int2(low, high); }
TS_DEVICE void ts_unpack(ts_e4m3, ts_u32 v, float &low, float &high) {
  ts_u32 two;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(two) : "h"((ts_u16)v));
  ts_unpack(ts_fp16(), two, low, high);
}
TS_DEVICE void ts_unpack(ts_e5m2, ts_u32 v, float &low, float &high) {
  ts_unpack(ts_fp16(), (v & 0xff) << 8 | (v & 0xff00) << 16, low, high);
}
TS_DEVICE void ts_load_pair(const ts_e4m3 *from, float &low, float &high) {
  ts_unpack(ts_e4m3(), *(const ts_u16 *)from, low, high);
}
TS_DEVICE void ts_load_pair(const ts_e5m2 *from, float &low, float &high) {
  ts_unpack(ts_e5m2(), *(const ts_u16 *)from, low, high);
}
template <typename T> TS_DEVICE void ts_load_pair(const T *from, float &low, float &high) {
  low = ts_float(from[0]), high = ts_float(from[1]);
}
template <typename T> TS_DEVICE float ts_fresh(const T *) { return 0.0f; } // never called
TS_DEVICE void ts_shared_store(ts_u32 to, float v) { ts_shared_store(to, __float_as_uint(v)); }
TS_DEVICE void ts_shared_store(ts_u32 to, int v) { ts_shared_store(to, (ts_u32)v); }
TS_DEVICE void ts_shared_store(ts_u32 to, ts_u16 v) { asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(v) : "memory"); }
TS_DEVICE void ts_shared_store2(ts_u32 to, float a, float b) {
  asm volatile("st.shared.v2.f32 [%0], {%1,%2};" ::"r"(to), "f"(a), "f"(b) : "memory");
}
TS_DEVICE void ts_shared_store2(ts_u32 to, int a, int b) {
  asm volatile("st.shared.v2.s32 [%0], {%1,%2};" ::"r"(to), "r"(a), "r"(b) : "memory");
}
TS_DEVICE ts_u32 ts_shared_load_half(ts_u32 from) {
  ts_u16 v;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(from) : "memory");
  return v;
}
TS_DEVICE void ts_shared_load2(ts_u32 from, float &a, float &b) {
  asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(a), "=f"(b) : "r"(from) : "memory");
}
TS_DEVICE void ts_shared_store4(ts_u32 to, const int *v) {
  asm volatile("st.shared.v4.s32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
}
TS_DEVICE void ts_shared_load4(ts_u32 from, int (&v)[4]) {
  asm volatile("ld.shared.v4.s32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(from)
               : "memory");
}
