  // --- the sums, on tensor cores ---
  // Rows (columns) of a 16-wide tile of bytes that do not lie by k come in pairs of neighbours: see `settle`.
  constexpr bool A_PAIRED = sizeof(Element) == 1 && !A_BY_K, B_PAIRED = sizeof(Element) == 1 && !B_BY_K;
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
  auto settle = [&](auto &fa, auto &fb) {
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
  auto multiply_all = [&](auto &sums, auto &fa, auto &fb) {
    settle(fa, fb);
    if constexpr (!WIDENED) {
#pragma unroll
      for (int i = 0; i < TILES_M; i++)
#pragma unroll
        for (int j = 0; j < TILES_N; j++)
          multiply(Element(), sums[i][j], fa[i], fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]);
    } else {
      // fp8 is multiplied in fp16, half a step at a time: of the four k in a register, the first pair goes to the one
      // half of an instruction's k and the second to the other, for both operands alike.
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
    }
  };

  const Steps steps = steps_of_part();
  // The first fragments of the next stage are fetched before the last products of this one.
  constexpr int PRODUCTS = BLOCK_K * sizeof(Element) / 32; // a product takes 32 bytes of a line
  u32 fragments_a[2][TILES_M][4], fragments_b[2][TILES_N / 2][4];
  int now = 0, next = 0;
  // The ring is filled by the loop too, so that copies are there once.
#pragma unroll 1
  for (int step = steps.begin - (STAGES - 1); step < steps.end; step++) {
    const u32 to = ring + next * STAGE_BYTES;
    next = next + 1 == STAGES ? 0 : next + 1;
    const bool more = step + STAGES - 1 < steps.end;
    // All warps are past the products whose operands lay at `to`: they met at the end of the last step.
    if (more) {
      load_a(step + STAGES - 1, to);
      load_b(step + STAGES - 1, to + CopiesA::BYTES);
    }
    copy_commit();
    if (step < steps.begin) {
      if (more) put(to);
      if (step < steps.begin - 1) continue;
      copy_wait<STAGES - 2>();
      __syncthreads();
      fetch(ring, ring + CopiesA::BYTES, 0, fragments_a[0], fragments_b[0]);
      continue;
    }
    const u32 here = ring + now * STAGE_BYTES;
    now = now + 1 == STAGES ? 0 : now + 1;
#pragma unroll
    for (int k = 0; k < PRODUCTS; k++) {
      constexpr int ODD = PRODUCTS % 2;
      const int from = ODD ? 0 : k % 2, ahead = ODD ? 0 : (k + 1) % 2;
      if (k == PRODUCTS - 1) {
        if (more) put(to);
        copy_wait<STAGES - 2>();
        __syncthreads();
      }
      if constexpr (ODD) {
        multiply_all(sums, fragments_a[0], fragments_b[0]);
        const u32 there = ring + now * STAGE_BYTES;
        fetch(there, there + CopiesA::BYTES, 0, fragments_a[0], fragments_b[0]);
      } else {
        const u32 there = k == PRODUCTS - 1 ? ring + now * STAGE_BYTES : here;
        fetch(there, there + CopiesA::BYTES, (k + 1) % PRODUCTS, fragments_a[ahead], fragments_b[ahead]);
        multiply_all(sums, fragments_a[from], fragments_b[from]);
      }
    }
  }
  end_ring();
  // Sums of 16 rows at a time pass through the warp's own shared memory, so that lanes store neighbouring columns.
  constexpr int PITCH = WARP_N + 8;
  constexpr int N = PARTIAL ? 4 : OUT_VECTOR;
  static_assert(WARPS_M * WARPS_N * 16 * PITCH * 4 <= TABLE_OFFSET, "the tables lie behind the sums on their way out");
  const u32 staged = ring + warp * 16 * PITCH * 4;
  const Sum *const mine = (const Sum *)(memory + warp * 16 * PITCH * 4);
  // The stores alone need `i` as a constant.
#pragma unroll 1
  for (int i = 0; i < TILES_M; i++) {
    const u32 first = staged + (A_PAIRED ? lane / 4 * 2 : lane / 4) * PITCH * 4;
    constexpr int BELOW = (A_PAIRED ? 1 : 8) * PITCH * 4;
#pragma unroll
    for (int known = 0; known < TILES_M; known++) {
      if (i != known) continue;
#pragma unroll
      for (int j = 0; j < TILES_N; j += 2) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const u32 to = first + (B_PAIRED ? j * 8 + lane % 4 * 4 + e * 2 : (j + e) * 8 + lane % 4 * 2) * 4;
          const int u = B_PAIRED ? j : j + e, v = B_PAIRED ? j + 1 : j + e, p = B_PAIRED ? e : 0, q = B_PAIRED ? e : 1;
          shared_store8(to, sums[known][u][p], sums[known][v][q]);
          shared_store8(to + BELOW, sums[known][u][p + 2], sums[known][v][q + 2]);
        }
      }
    }
    __syncwarp();
#if IN_TURNS
#pragma unroll 1
#else
#pragma unroll (N < 4 ? 4 : 2)
#endif
    for (int at = lane; at < 16 * WARP_N / N; at += 32) {
      const int r = at / (WARP_N / N), c = at % (WARP_N / N) * N;
      const int in_tile = warp_m * WARP_M + i * 16 + r, row = m0 + in_tile, col = n0 + warp_n * WARP_N + c;
      Sum v[N];
#pragma unroll
      for (int e = 0; e < N; e++) v[e] = mine[r * PITCH + c + e];
      if constexpr (PARTIAL)
        run.store_part(v, layer_part, row, col);
      else if (row_place[in_tile] != NOWHERE)
        run.finish(v, row_place[in_tile], col, group);
    }
    __syncwarp();
  }
  repair();
}
} // namespace @SYM@_scope
} // namespace ts_mma
