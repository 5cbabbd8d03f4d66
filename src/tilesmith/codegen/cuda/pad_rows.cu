typedef long long @SYM@_i64;
typedef unsigned int @SYM@_u32;

// Copies rows that begin anywhere to rows that begin at multiples of 16 bytes: a thread moves 16 bytes at a time. The gap
// behind a row gets what follows the row, or nothing. Of two matrices, the second one is the work of the blocks behind.
extern "C" __global__ void __launch_bounds__(256) @SYM@(@PARAMETERS@) {
  typedef @SYM@_i64 i64;
  typedef @SYM@_u32 u32;
  constexpr int EACH = 4;
#if __CUDA_ARCH__ >= 900 // it may have begun before the kernel ahead has ended
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  const bool second = blockIdx.x >= (u32)blocks_0;
  const char *const from = (const char *)(second ? from_1 : from_0);
  char *const to = (char *)(second ? to_1 : to_0);
  const i64 step = second ? step_1 : step_0, layer = second ? layer_1 : layer_0, end = second ? end_1 : end_0;
  const u32 chunks = (u32)(second ? chunks_1 : chunks_0), rows = (u32)(second ? rows_1 : rows_0);
  const u32 all = (u32)(second ? all_1 : all_0);
  const u32 first = (blockIdx.x - (second ? (u32)blocks_0 : 0)) * (256 * EACH) + threadIdx.x;
  uint4 low[EACH], high[EACH];
  i64 begin[EACH];
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    const u32 at = first + e * 256, line = at / chunks, chunk = at - line * chunks, of = line / rows;
    begin[e] = of * layer + (line - of * rows) * step + chunk * (i64)16;
    const i64 whole = begin[e] & ~(i64)15;
    if (at < all && whole + 32 <= end) low[e] = *(const uint4 *)(from + whole), high[e] = *(const uint4 *)(from + whole + 16);
  }
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    const u32 at = first + e * 256;
    if (at >= all) return;
    const u32 bytes = (u32)begin[e] & 15;
    uint4 put;
    if ((begin[e] & ~(i64)15) + 32 <= end) {
      u32 w[8] = {low[e].x, low[e].y, low[e].z, low[e].w, high[e].x, high[e].y, high[e].z, high[e].w};
#pragma unroll
      for (int i = 0; i < 6; i++) w[i] = bytes & 8 ? w[i + 2] : w[i];
#pragma unroll
      for (int i = 0; i < 5; i++) w[i] = bytes & 4 ? w[i + 1] : w[i];
      const u32 bits = (bytes & 3) * 8;
      put.x = __funnelshift_r(w[0], w[1], bits), put.y = __funnelshift_r(w[1], w[2], bits);
      put.z = __funnelshift_r(w[2], w[3], bits), put.w = __funnelshift_r(w[3], w[4], bits);
    } else { // near the end of the matrix: byte by byte
      u32 w[4] = {0, 0, 0, 0};
#pragma unroll
      for (int i = 0; i < 16; i++)
        if (begin[e] + i < end) w[i / 4] |= (u32) * (const unsigned char *)(from + begin[e] + i) << i % 4 * 8;
      put = {w[0], w[1], w[2], w[3]};
    }
    *(uint4 *)(to + (i64)at * 16) = put;
  }
}
