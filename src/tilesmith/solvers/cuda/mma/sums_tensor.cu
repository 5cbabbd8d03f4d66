  constexpr int TILES_M = WARP_M / 16, TILES_N = WARP_N / 8;
  Sum sums[TILES_M][TILES_N][4];
#pragma unroll
  for (int i = 0; i < TILES_M; i++)
#pragma unroll
    for (int j = 0; j < TILES_N; j++) sums[i][j][0] = sums[i][j][1] = sums[i][j][2] = sums[i][j][3] = 0;

  // Where this lane reads its part of a fragment (or points ldmatrix at), in bytes: a line, and in it a chunk, of which
  // a constant flips bits (tiles of a warp are powers of two).
  constexpr int SIZE = sizeof(Element), LINE_A = CopiesA::CHUNKS * 16, LINE_B = CopiesB::CHUNKS * 16;
  const int low = lane & 15, high = lane >> 4, mixed = (lane & 7) + high * 8, middle = lane >> 3 & 1;
  // Lines of bytes: the four k of a register, whose two halves two matrices hold.
  const int paired = high * 16 + (lane >> 1 & 3) * 4 + middle * 2 + (lane & 1);
  const int across = SIZE == 1 ? paired : lane & 3, word = SIZE == 4 ? (lane >> 2 & 3) * 4 : 0;
  const u32 line_a = (A_BY_K ? warp_m * WARP_M + low : SIZE == 2 ? mixed : across) * LINE_A;
  const u32 line_b = (B_BY_K ? warp_n * WARP_N + mixed : SIZE == 2 ? low : across) * LINE_B;
  u32 chunk_a, chunk_b;
  if constexpr (A_BY_K)
    chunk_a = CopiesA::swizzled(low, high) * 16;
  else if constexpr (SIZE == 2)
    chunk_a = CopiesA::swizzled(mixed, warp_m * (WARP_M / 8) + middle) * 16;
  else
    chunk_a = CopiesA::swizzled(across, warp_m * (WARP_M * SIZE / 16) + (SIZE == 4 ? high : 0)) * 16 + word;
  if constexpr (B_BY_K)
    chunk_b = CopiesB::swizzled(mixed, middle) * 16;
  else if constexpr (SIZE == 2)
    chunk_b = CopiesB::swizzled(low, warp_n * (WARP_N / 8) + high) * 16;
  else
    chunk_b = CopiesB::swizzled(across, warp_n * (WARP_N * SIZE / 16) + (SIZE == 4 ? high : 0)) * 16 + word;
  auto fetch = [&](u32 tile_a, u32 tile_b, int k, u32 (&fa)[TILES_M][4], u32 (&fb)[TILES_N / 2][4]) {
    const u32 at_a = tile_a + line_a, at_b = tile_b + line_b;
#pragma unroll
    for (int i = 0; i < TILES_M; i++) {
      if constexpr (A_BY_K || SIZE != 4) {
        load_tiles<!A_BY_K>(fa[i], at_a + (A_BY_K ? i * 16 : k * (32 / SIZE)) * LINE_A + (chunk_a ^ (A_BY_K ? k * 32 : i * 16 * SIZE)));
      } else {
        const u32 from = at_a + k * 8 * LINE_A, chunk = chunk_a ^ i * 64;
        fa[i][0] = shared_word(from + chunk), fa[i][1] = shared_word(from + (chunk ^ 32));
        fa[i][2] = shared_word(from + 4 * LINE_A + chunk), fa[i][3] = shared_word(from + 4 * LINE_A + (chunk ^ 32));
      }
    }
#pragma unroll
    for (int j = 0; j < TILES_N / 2; j++) {
      if constexpr (B_BY_K || SIZE != 4) {
        load_tiles<!B_BY_K>(fb[j], at_b + (B_BY_K ? j * 16 : k * (32 / SIZE)) * LINE_B + (chunk_b ^ (B_BY_K ? k * 32 : j * 16 * SIZE)));
      } else {
        const u32 from = at_b + k * 8 * LINE_B, chunk = chunk_b ^ j * 64;
        fb[j][0] = shared_word(from + chunk), fb[j][1] = shared_word(from + 4 * LINE_B + chunk);
        fb[j][2] = shared_word(from + (chunk ^ 32)), fb[j][3] = shared_word(from + 4 * LINE_B + (chunk ^ 32));
      }
    }
  };
  // Makes operands of what was fetched. Bytes that came transposed: a register holds two k of two neighbouring lines,
  // and shall hold four k of one; the even one takes the first half of the tile, the odd one the second.
  auto settle = [&](u32 (&fa)[TILES_M][4], u32 (&fb)[TILES_N / 2][4]) {
#pragma unroll
    for (int i = 0; i < TILES_M; i++) {
      u32(&f)[4] = fa[i];
      if constexpr (A_PAIRED) {
        const u32 a = f[0], b = f[1], c = f[2], d = f[3];
        f[0] = __byte_perm(a, b, 0x6420), f[1] = __byte_perm(a, b, 0x7531);
        f[2] = __byte_perm(c, d, 0x6420), f[3] = __byte_perm(c, d, 0x7531);
      }
#pragma unroll
      for (int e = 0; e < 4 && SIZE == 4; e++) round_to_tf32(f[e]);
    }
#pragma unroll
    for (int j = 0; j < TILES_N / 2; j++) {
      u32(&f)[4] = fb[j];
      if constexpr (B_PAIRED) {
        const u32 a = f[0], b = f[1], c = f[2], d = f[3];
        f[0] = __byte_perm(a, b, 0x6420), f[1] = __byte_perm(c, d, 0x6420);
        f[2] = __byte_perm(a, b, 0x7531), f[3] = __byte_perm(c, d, 0x7531);
      }
#pragma unroll
      for (int e = 0; e < 4 && SIZE == 4; e++) round_to_tf32(f[e]);
    }
  };
@PRODUCTS@
