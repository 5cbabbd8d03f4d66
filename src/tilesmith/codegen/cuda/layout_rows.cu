typedef long long @SYM@_i64;
typedef unsigned int @SYM@_u32;
struct alignas(@BYTES@) @SYM@_unit {
  @PART@ v[@PARTS@];
};

// Each thread moves @EACH@ units: along p they are neighbours where they are written.
extern "C" __global__ void __launch_bounds__(256) @SYM@(@PARAMETERS@) {
  typedef @SYM@_i64 i64;
  typedef @SYM@_u32 u32;
  typedef @SYM@_unit Unit;
  typedef @INDEX@ Index;
#if __CUDA_ARCH__ >= 900 // it may have begun before the kernel ahead has ended
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  u32 item = blockIdx.x;
  const Index first = (Index)(item % (u32)chunks) * (256 * @EACH@) + threadIdx.x;
  item /= (u32)chunks;
  i64 from_at = 0, to_at = 0;
@OUTER@
  const Unit *const src = (const Unit *)from + from_at;
  Unit *const dst = (Unit *)to + to_at;
  Unit held[@EACH@];
#pragma unroll
  for (int e = 0; e < @EACH@; e++) {
    const Index at = first + e * 256, q = at / (Index)size_p, p = at - q * (Index)size_p;
    if (at < (Index)(size_p * size_q)) held[e] = src[p * from_p + q * from_q];
  }
#pragma unroll
  for (int e = 0; e < @EACH@; e++) {
    const Index at = first + e * 256, q = at / (Index)size_p, p = at - q * (Index)size_p;
    if (at < (Index)(size_p * size_q)) dst[p * to_p + q * to_q] = held[e];
  }
}
