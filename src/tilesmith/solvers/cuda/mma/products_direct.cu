  auto multiply_all = [&](u32 (&fa)[TILES_M][4], u32 (&fb)[TILES_N / 2][4]) {
    settle(fa, fb);
#pragma unroll
    for (int i = 0; i < TILES_M; i++)
#pragma unroll
      for (int j = 0; j < TILES_N; j++)
        multiply(Element(), sums[i][j], fa[i], fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]);
  };
