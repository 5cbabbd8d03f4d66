// Products of warpgroups: rows are neighbouring pixels of the window, whatever line they lie in, and those between the
// lines of positions are computed in vain. A piece of all pixels lies in one plane, so that a tap is the same plane from
// another pixel on.
constexpr int ROWS = TAPS_ON_N ? PIXELS - pixel_of(TAPS - 1) : ((TILE_D - 1) * WINDOW_H + TILE_H - 1) * WINDOW_W + TILE_W;
constexpr int PRODUCTS_M = (ROWS + WARPS_M * 16 - 1) / (WARPS_M * 16), PRODUCTS_N = BLOCK_N / 8 / WARPS_N;
// An odd multiple of 16 bytes: what lanes write of a pixel lies in different banks.
constexpr int PLANE_BYTES = ((PRODUCTS_M * WARPS_M * 16 + pixel_of(TAPS - 1)) | 1) * 16;
static_assert(WARPS_M % 4 == 0 && WINDOW_BYTES >= PIECES * PLANE_BYTES, "whole warpgroups, planes fit");
static_assert(PLANE_BYTES >= PIXELS * 16 && FILTER_BYTES >= BLOCK_N * STEPS * 32, "as counted");

TS_MMA_CONSTANT int piece_offset(Piece at) { return at.piece * PLANE_BYTES + pixel_of(at.tap) * 16; }
// From a step's first half to its second one: to itself where no second one exists, whose weights are zero.
TS_MMA_CONSTANT int half_offset(int step) {
  return piece_at(step, 1).tap < TAPS ? piece_offset(piece_at(step, 1)) - piece_offset(piece_at(step, 0)) : 0;
}
TS_MMA_DEVICE u32 place_of(int pixel, int channel) {
  return channel / 8 * PLANE_BYTES + pixel * 16 + channel % 8 * 2;
}
TS_MMA_DEVICE u32 filter_place(int i) { return i * 16; }
TS_MMA_DEVICE int first_row(int warp, int i) { return (warp / 4 / WARPS_N * PRODUCTS_M + i) * 64 + warp % 4 * 16; }
TS_MMA_DEVICE int first_column(int warp) { return warp / 4 % WARPS_N * PRODUCTS_N * 8; }
TS_MMA_DEVICE int row_of_line(int d, int h) { return (d * WINDOW_H + h) * WINDOW_W; }
TS_MMA_DEVICE void operands_written() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
TS_MMA_DEVICE void products_ended() {
  __syncwarp();
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

// The first row and column of a warpgroup in bytes; eight of 16 bytes follow each other.
struct Operands {
  u32 row, column;
};
TS_MMA_DEVICE Operands operands_of(int warp, int lane) {
  return {(u32)(first_row(warp / 4 * 4, 0) * 16), (u32)(first_column(warp) * 16)};
}

TS_MMA_DEVICE void multiply_all(float (&sums)[PRODUCTS_M][PRODUCTS_N * 4], const Operands &o, u32 window, u32 filter,
                                bool add) {
  const u64 rows = (u64)(128 >> 4) << 32 | (u64)(((window + o.row) & 0x3ffff) >> 4);
  const u64 by = (u64)(128 >> 4) << 32 | (u64)BLOCK_N << 16 | (u64)(((filter + o.column) & 0x3ffff) >> 4);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  // A product need not wait for the one ahead of it, which has other sums.
#pragma unroll
  for (int s = 0; s < STEPS; s++)
#pragma unroll
    for (int i = 0; i < PRODUCTS_M; i++)
      product(sums[i], rows + ((u64)(half_offset(s) >> 4) << 16) + (u64)(i * 64 + (piece_offset(piece_at(s, 0)) >> 4)),
              by + (u64)(s * BLOCK_N * 2), add || s > 0);
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
