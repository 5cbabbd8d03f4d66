  // A warp is 4 x 8 threads. Where lines run along k a thread's rows (columns) are 4 (8) apart; where they run
  // along rows (columns) it has them by fours.
  constexpr int ROWS = WARP_M / 4, COLUMNS = WARP_N / 8;
  const int lane_m = lane / 8, lane_n = lane % 8;
  float sums[ROWS][COLUMNS];
#pragma unroll
  for (int i = 0; i < ROWS; i++)
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) sums[i][j] = 0.0f;
  auto row_of = [&](int i) {
    return warp_m * WARP_M + (A_BY_K ? i * 4 + lane_m : i / 4 * 16 + lane_m * 4 + i % 4);
  };
  auto column_of = [&](int j) {
    return warp_n * WARP_N + (B_BY_K ? j * 8 + lane_n : j / 4 * 32 + lane_n * 4 + j % 4);
  };
  auto accumulate = [&](u32 tile_a, u32 tile_b) {
#pragma unroll 1 // unrolled, the compiler fetches far ahead and runs out of registers
    for (int k = 0; k < BLOCK_K; k += 4) {
      float fa[ROWS][4], fb[COLUMNS][4];
      if constexpr (A_BY_K) {
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
          const float4 v = shared_floats4(tile_a + (row_of(i) * CopiesA::CHUNKS + CopiesA::swizzled(row_of(i), k / 4)) * 16);
          fa[i][0] = v.x, fa[i][1] = v.y, fa[i][2] = v.z, fa[i][3] = v.w;
        }
      } else {
#pragma unroll
        for (int i = 0; i < ROWS; i += 4)
#pragma unroll
          for (int q = 0; q < 4; q++) {
            const float4 v = shared_floats4(tile_a + ((k + q) * CopiesA::CHUNKS + CopiesA::swizzled(k + q, row_of(i) / 4)) * 16);
            fa[i][q] = v.x, fa[i + 1][q] = v.y, fa[i + 2][q] = v.z, fa[i + 3][q] = v.w;
          }
      }
      if constexpr (B_BY_K) {
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
          const float4 v = shared_floats4(tile_b + (column_of(j) * CopiesB::CHUNKS + CopiesB::swizzled(column_of(j), k / 4)) * 16);
          fb[j][0] = v.x, fb[j][1] = v.y, fb[j][2] = v.z, fb[j][3] = v.w;
        }
      } else {
#pragma unroll
        for (int j = 0; j < COLUMNS; j += 4)
#pragma unroll
          for (int q = 0; q < 4; q++) {
            const float4 v = shared_floats4(tile_b + ((k + q) * CopiesB::CHUNKS + CopiesB::swizzled(k + q, column_of(j) / 4)) * 16);
            fb[j][q] = v.x, fb[j + 1][q] = v.y, fb[j + 2][q] = v.z, fb[j + 3][q] = v.w;
          }
      }
#pragma unroll
      for (int q = 0; q < 4; q++)
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
          for (int j = 0; j < COLUMNS; j++) sums[i][j] = fmaf(fa[i][q], fb[j][q], sums[i][j]);
    }
  };
