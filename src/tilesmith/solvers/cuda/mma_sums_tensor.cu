  constexpr int TILES_M = WARP_M / 16, TILES_N = WARP_N / 8;
  float sums[TILES_M][TILES_N][4];
#pragma unroll
  for (int i = 0; i < TILES_M; i++)
#pragma unroll
    for (int j = 0; j < TILES_N; j++) sums[i][j][0] = sums[i][j][1] = sums[i][j][2] = sums[i][j][3] = 0.0f;

  // The line and the chunk of the 8 elements that this lane points ldmatrix at.
  const int low = lane & 15, high = lane >> 4, mixed = (lane & 7) + high * 8, middle = lane >> 3 & 1;
  auto fetch = [&](u32 tile_a, u32 tile_b, int k, u32 (&fa)[TILES_M][4], u32 (&fb)[TILES_N / 2][4]) {
#pragma unroll
    for (int i = 0; i < TILES_M; i++) {
      const int m = warp_m * WARP_M + i * 16;
      const int line = A_BY_K ? m + low : k * 16 + mixed, chunk = A_BY_K ? k * 2 + high : m / 8 + middle;
      load_tiles<!A_BY_K>(fa[i], tile_a + (line * CopiesA::CHUNKS + swizzled<CopiesA::CHUNKS>(line, chunk)) * 16);
    }
#pragma unroll
    for (int j = 0; j < TILES_N / 2; j++) {
      const int n = warp_n * WARP_N + j * 16;
      const int line = B_BY_K ? n + mixed : k * 16 + low, chunk = B_BY_K ? k * 2 + middle : n / 8 + high;
      load_tiles<!B_BY_K>(fb[j], tile_b + (line * CopiesB::CHUNKS + swizzled<CopiesB::CHUNKS>(line, chunk)) * 16);
    }
  };
  auto accumulate = [&](u32 tile_a, u32 tile_b) {
    u32 fa[2][TILES_M][4], fb[2][TILES_N / 2][4];
    fetch(tile_a, tile_b, 0, fa[0], fb[0]);
#pragma unroll
    for (int k = 0; k < BLOCK_K / 16; k++) {
      if (k + 1 < BLOCK_K / 16) fetch(tile_a, tile_b, k + 1, fa[(k + 1) % 2], fb[(k + 1) % 2]);
#pragma unroll
      for (int i = 0; i < TILES_M; i++)
#pragma unroll
        for (int j = 0; j < TILES_N; j++)
          multiply(Element(), sums[i][j], fa[k % 2][i], fb[k % 2][j / 2][j % 2 * 2], fb[k % 2][j / 2][j % 2 * 2 + 1]);
    }
  };
