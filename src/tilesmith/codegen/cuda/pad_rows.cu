typedef long long @SYM@_i64;
typedef unsigned int @SYM@_u32;
struct alignas(16) @SYM@_wide {
  @SYM@_u32 v[4];
};

// Copies rows that begin anywhere to rows that begin at multiples of 16 bytes: a thread moves 16 bytes at a time. The gap
// behind a row gets what follows the row, or nothing. Of two matrices, the second one is the work of the blocks behind.
extern "C" __global__ void __launch_bounds__(256) @SYM@(@PARAMETERS@) {
  typedef @SYM@_i64 i64;
  typedef @SYM@_u32 u32;
  typedef @SYM@_wide Wide;
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
  Wide low[EACH], high[EACH];
  i64 begin[EACH];
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    const u32 at = first + e * 256, line = at / chunks, chunk = at - line * chunks, of = line / rows;
    begin[e] = of * layer + (line - of * rows) * step + chunk * (i64)16;
    const i64 whole = begin[e] & ~(i64)15;
    if (at < all && whole + 32 <= end) low[e] = *(const Wide *)(from + whole), high[e] = *(const Wide *)(from + whole + 16);
  }
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    const u32 at = first + e * 256;
    if (at >= all) return;
    const u32 bytes = (u32)begin[e] & 15;
    Wide put;
    if ((begin[e] & ~(i64)15) + 32 <= end) {
      u32 w[8];
#pragma unroll
      for (int i = 0; i < 8; i++) w[i] = i < 4 ? low[e].v[i] : high[e].v[i - 4];
#pragma unroll
      for (int i = 0; i < 6; i++) w[i] = bytes & 8 ? w[i + 2] : w[i];
#pragma unroll
      for (int i = 0; i < 5; i++) w[i] = bytes & 4 ? w[i + 1] : w[i];
      const u32 bits = (bytes & 3) * 8;
#pragma unroll
      for (int i = 0; i < 4; i++) put.v[i] = (u32)((unsigned long long)w[i + 1] << 32 >> bits | w[i] >> bits);
    } else { // near the end of the matrix: byte by byte
#pragma unroll
      for (int i = 0; i < 16; i++) {
        const u32 byte = begin[e] + i < end ? *(const unsigned char *)(from + begin[e] + i) : 0;
        put.v[i / 4] = i % 4 ? put.v[i / 4] | byte << i % 4 * 8 : byte;
      }
    }
    *(Wide *)(to + (i64)at * 16) = put;
  }
}
