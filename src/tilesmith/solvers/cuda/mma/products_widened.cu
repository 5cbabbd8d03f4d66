  // fp8 is multiplied in fp16, half a step at a time: of the four k in a register, the first pair goes to the one half of
  // an instruction's k and the second to the other, for both operands alike.
  auto multiply_all = [&](u32 (&fa)[TILES_M][4], u32 (&fb)[TILES_N / 2][4]) {
    settle(fa, fb);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      u32 wide[TILES_M][4];
#pragma unroll
      for (int i = 0; i < TILES_M; i++) {
        widen_pairs(Element(), fa[i][half * 2], wide[i][0], wide[i][2]);
        widen_pairs(Element(), fa[i][half * 2 + 1], wide[i][1], wide[i][3]);
      }
#pragma unroll
      for (int j = 0; j < TILES_N; j++) {
        u32 b0, b1;
        widen_pairs(ElementB(), fb[j / 2][j % 2 * 2 + half], b0, b1);
#pragma unroll
        for (int i = 0; i < TILES_M; i++) multiply(fp16(), sums[i][j], wide[i], b0, b1);
      }
    }
  };
