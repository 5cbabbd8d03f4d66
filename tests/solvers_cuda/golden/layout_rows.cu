typedef long long ts_layout_b128_rows__sm_90a_golden_i64;
typedef unsigned int ts_layout_b128_rows__sm_90a_golden_u32;
struct alignas(16) ts_layout_b128_rows__sm_90a_golden_unit {
  unsigned long long v[2];
};

// Each thread moves 4 units: along p they are neighbours where they are written.
extern "C" __global__ void __launch_bounds__(256) ts_layout_b128_rows__sm_90a_golden(const void *from, void *to, long long chunks, long long size_p, long long from_p, long long to_p, long long size_q, long long from_q, long long to_q) {
  typedef ts_layout_b128_rows__sm_90a_golden_i64 i64;
  typedef ts_layout_b128_rows__sm_90a_golden_u32 u32;
  typedef ts_layout_b128_rows__sm_90a_golden_unit Unit;
  typedef u32 Index;
#if __CUDA_ARCH__ >= 900 // it may have begun before the kernel ahead has ended
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  u32 item = blockIdx.x;
  const Index first = (Index)(item % (u32)chunks) * (256 * 4) + threadIdx.x;
  item /= (u32)chunks;
  i64 from_at = 0, to_at = 0;

  const Unit *const src = (const Unit *)from + from_at;
  Unit *const dst = (Unit *)to + to_at;
  Unit held[4];
#pragma unroll
  for (int e = 0; e < 4; e++) {
    const Index at = first + e * 256, q = at / (Index)size_p, p = at - q * (Index)size_p;
    if (at < (Index)(size_p * size_q)) held[e] = src[p * from_p + q * from_q];
  }
#pragma unroll
  for (int e = 0; e < 4; e++) {
    const Index at = first + e * 256, q = at / (Index)size_p, p = at - q * (Index)size_p;
    if (at < (Index)(size_p * size_q)) dst[p * to_p + q * to_q] = held[e];
  }
}
