  constexpr int TILES_M = WARP_M / 16, TILES_N = WARP_N / 8;
  float sums[TILES_M][TILES_N][4];
#pragma unroll
  for (int i = 0; i < TILES_M; i++)
#pragma unroll
    for (int j = 0; j < TILES_N; j++) sums[i][j][0] = sums[i][j][1] = sums[i][j][2] = sums[i][j][3] = 0.0f;

  // Where this lane points ldmatrix at, in bytes: a line, and in it a chunk, of which a constant flips bits (tiles of
  // a warp are powers of two).
  constexpr int LINE_A = CopiesA::CHUNKS * 16, LINE_B = CopiesB::CHUNKS * 16;
  const int low = lane & 15, high = lane >> 4, mixed = (lane & 7) + high * 8, middle = lane >> 3 & 1;
  const u32 line_a = (A_BY_K ? warp_m * WARP_M + low : mixed) * LINE_A;
  const u32 line_b = (B_BY_K ? warp_n * WARP_N + mixed : low) * LINE_B;
  const u32 chunk_a = swizzled<CopiesA::CHUNKS>(A_BY_K ? low : mixed, A_BY_K ? high : warp_m * (WARP_M / 8) + middle) * 16;
  const u32 chunk_b = swizzled<CopiesB::CHUNKS>(B_BY_K ? mixed : low, B_BY_K ? middle : warp_n * (WARP_N / 8) + high) * 16;
  auto fetch = [&](u32 tile_a, u32 tile_b, int k, u32 (&fa)[TILES_M][4], u32 (&fb)[TILES_N / 2][4]) {
    const u32 at_a = tile_a + line_a, at_b = tile_b + line_b;
#pragma unroll
    for (int i = 0; i < TILES_M; i++)
      load_tiles<!A_BY_K>(fa[i], at_a + (A_BY_K ? i : k) * 16 * LINE_A + (chunk_a ^ (A_BY_K ? k : i) * 32));
#pragma unroll
    for (int j = 0; j < TILES_N / 2; j++)
      load_tiles<!B_BY_K>(fb[j], at_b + (B_BY_K ? j : k) * 16 * LINE_B + (chunk_b ^ (B_BY_K ? k : j) * 32));
  };
  auto multiply_all = [&](const u32 (&fa)[TILES_M][4], const u32 (&fb)[TILES_N / 2][4]) {
#pragma unroll
    for (int i = 0; i < TILES_M; i++)
#pragma unroll
      for (int j = 0; j < TILES_N; j++)
        multiply(Element(), sums[i][j], fa[i], fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]);
  };
