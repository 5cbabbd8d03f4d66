// Products of warps: each has PRODUCTS_M times 16 positions, and its columns.
constexpr int ROWS = TAPS_ON_N ? PIXELS - pixel_of(TAPS - 1) : TILE_D * TILE_H * TILE_W;
constexpr int PRODUCTS_M = (ROWS + WARPS_M * 16 - 1) / (WARPS_M * 16), PRODUCTS_N = BLOCK_N / 8 / WARPS_N;
// An odd multiple of 16 bytes: eight pixels lie in different banks.
constexpr int PIXEL_BYTES = BLOCK_C * 2 + (PIECES % 2 ? 0 : 16), FILTER_PITCH = STEPS * 32 + 16;
static_assert(WINDOW_BYTES >= PIXELS * PIXEL_BYTES, "a window fits");
static_assert(FILTER_BYTES >= (BLOCK_N + 8) * FILTER_PITCH, "reads go beyond the last column");

// The bytes from a row's first piece to that of half a step.
TS_MMA_CONSTANT int piece_offset(int step, int half) {
  const Piece at = piece_at(step, half);
  return at.tap < TAPS ? pixel_of(at.tap) * PIXEL_BYTES + at.piece * 16 : 0;
}
TS_MMA_DEVICE u32 place_of(int pixel, int channel) { return pixel * PIXEL_BYTES + channel * 2; }
TS_MMA_DEVICE u32 filter_place(int i) { return i / (STEPS * 2) * FILTER_PITCH + i % (STEPS * 2) * 16; }
TS_MMA_DEVICE int first_row(int warp, int i) { return (warp / WARPS_N * PRODUCTS_M + i) * 16; }
TS_MMA_DEVICE int first_column(int warp) { return warp % WARPS_N * PRODUCTS_N * 8; }
TS_MMA_DEVICE int row_of_line(int d, int h) { return (d * TILE_H + h) * TILE_W; }
TS_MMA_DEVICE void operands_written() {}
TS_MMA_DEVICE void products_ended() {}

// Where a lane reads its rows, and its columns of the filter.
constexpr bool EVEN = PIECES % 2 == 0; // both halves of a step belong to one tap
struct Operands {
  u32 rows[PRODUCTS_M], columns;
  bool upper;
};
TS_MMA_DEVICE Operands operands_of(int warp, int lane) {
  Operands o;
  o.upper = lane >= 16;
#pragma unroll
  for (int i = 0; i < PRODUCTS_M; i++) {
    int m = first_row(warp, i) + lane % 16;
    if (m >= ROWS) m = 0;
    if constexpr (!TAPS_ON_N) m = (m / (TILE_H * TILE_W) * WINDOW_H + m / TILE_W % TILE_H) * WINDOW_W + m % TILE_W;
    o.rows[i] = m * PIXEL_BYTES + (EVEN && o.upper ? 16 : 0);
  }
  o.columns = (first_column(warp) + lane % 8 + lane / 16 * 8) * FILTER_PITCH + lane / 8 % 2 * 16;
  return o;
}

TS_MMA_DEVICE void multiply_all(float (&sums)[PRODUCTS_M][PRODUCTS_N * 4], const Operands &o, u32 window, u32 filter,
                                bool add) {
  if (!add) {
#pragma unroll
    for (int i = 0; i < PRODUCTS_M; i++)
#pragma unroll
      for (int j = 0; j < PRODUCTS_N * 4; j++)
        sums[i][j] = 0.0f;
  }
  constexpr int PAIRS = (PRODUCTS_N + 1) / 2;
  const u32 by = filter + o.columns;
#pragma unroll
  for (int s = 0; s < STEPS; s++) {
    const u32 used = used_columns(s);
    u32 b[PAIRS][4];
#pragma unroll
    for (int j = 0; j < PAIRS; j++)
      if (used >> 2 * j & 3) load_tiles<false>(b[j], by + (j * 16 * FILTER_PITCH + s * 32));
    const u32 at = window + (EVEN ? piece_offset(s, 0) : o.upper ? piece_offset(s, 1) : piece_offset(s, 0));
#pragma unroll
    for (int i = 0; i < PRODUCTS_M; i++) {
      u32 a[4];
      load_tiles<false>(a, at + o.rows[i]);
#pragma unroll
      for (int j = 0; j < PRODUCTS_N; j++)
        if (used >> j & 1)
          multiply(Element(), *(float(*)[4])(sums[i] + j * 4), a, b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    }
  }
}
