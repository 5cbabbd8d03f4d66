  // --- the sums of fp32, by single multiply-adds ---
  // A warp is 4 x 8 threads. Where lines run along k a thread's rows (columns) are 4 (8) apart; where they run
  // along rows (columns) it has them by fours.
  constexpr int ROWS = WARP_M / 4, COLUMNS = WARP_N / 8;
  // NOTE: neighbouring lanes share columns, those two apart share rows: so the four passes of a 16-byte load of a warp
  // become two (as in S. Gray's maxas SGEMM).
  const int lane_m = lane & 1 | lane >> 4 << 1, lane_n = lane >> 1 & 7;
  float sums[ROWS][COLUMNS];
#pragma unroll
  for (int i = 0; i < ROWS; i++)
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) sums[i][j] = 0.0f;
  auto row_of = [&](int i) { return warp_m * WARP_M + (A_BY_K ? i * 4 + lane_m : i / 4 * 16 + lane_m * 4 + i % 4); };
  auto column_of = [&](int j) { return warp_n * WARP_N + (B_BY_K ? j * 8 + lane_n : j / 4 * 32 + lane_n * 4 + j % 4); };
  // Four of k for each of a thread's rows (columns), which lie as `copies` says.
  auto fetch = [](auto copies, auto &f, u32 tile, int k, const auto &line_of) {
    typedef decltype(copies) Tile;
    constexpr int COUNT = sizeof(f) / sizeof(f[0]);
    if constexpr (Tile::BY_LINE) {
#pragma unroll
      for (int i = 0; i < COUNT; i++) {
        const float4 v = shared_floats4(tile + (line_of(i) * Tile::CHUNKS + Tile::swizzled(line_of(i), k / 4)) * 16);
        f[i][0] = v.x, f[i][1] = v.y, f[i][2] = v.z, f[i][3] = v.w;
      }
    } else {
#pragma unroll
      for (int i = 0; i < COUNT; i += 4)
#pragma unroll
        for (int q = 0; q < 4; q++) {
          const float4 v = shared_floats4(tile + ((k + q) * Tile::CHUNKS + Tile::swizzled(k + q, line_of(i) / 4)) * 16);
          f[i][q] = v.x, f[i + 1][q] = v.y, f[i + 2][q] = v.z, f[i + 3][q] = v.w;
        }
    }
  };
  auto multiply_all = [&](u32 tile_a, u32 tile_b) {
#pragma unroll 1 // unrolled, the compiler fetches far ahead and runs out of registers
    for (int k = 0; k < BLOCK_K; k += 4) {
      float fa[ROWS][4], fb[COLUMNS][4];
      fetch(copies_a, fa, tile_a, k, row_of);
      fetch(copies_b, fb, tile_b, k, column_of);
// NOTE: an FFMA reads three registers from two banks, each of which gives one a cycle, beside what `.reuse` has kept:
// down one column and up the next ptxas keeps most.
#pragma unroll
      for (int q = 0; q < 4; q++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++)
#pragma unroll
          for (int down = 0; down < ROWS; down++) {
            const int i = j % 2 ? ROWS - 1 - down : down;
            sums[i][j] = fmaf(fa[i][q], fb[j][q], sums[i][j]);
          }
    }
  };

  const Steps steps = steps_of_part();
  int now = 0, next = 0;
  // The ring is filled by the loop too, so that copies are there once.
#pragma unroll 1
  for (int step = steps.begin - (STAGES - 1); step < steps.end; step++) {
    const bool filled = step >= steps.begin, more = step + STAGES - 1 < steps.end;
    if (filled) {
      copy_wait<STAGES - 2>();
      __syncthreads();
    }
    const u32 to = ring + next * STAGE_BYTES;
    next = next + 1 == STAGES ? 0 : next + 1;
    if (more) {
      load_a(step + STAGES - 1, to);
      load_b(step + STAGES - 1, to + CopiesA::BYTES);
    }
    copy_commit();
    if (filled) {
      multiply_all(ring + now * STAGE_BYTES, ring + now * STAGE_BYTES + CopiesA::BYTES);
      now = now + 1 == STAGES ? 0 : now + 1;
    }
    if (more) put(to);
  }
  end_ring();
  // NOTE: results that are stored by fours lie in neighbouring registers. ptxas would have the sums of the loop there as
  // well, in banks that collide; a zero that it cannot know keeps the two apart.
  const u32 zero = (u32)run.rows >> 31;
#pragma unroll
  for (int i = 0; i < ROWS; i++)
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) {
      u32 apart = __float_as_uint(sums[i][j]) ^ zero;
      kept(apart);
      sums[i][j] = __uint_as_float(apart);
    }
  constexpr int N = B_BY_K ? 1 : PARTIAL ? 4 : OUT_VECTOR < 4 ? OUT_VECTOR : 4;
  auto finish_row = [&](int i, const float(&row_sums)[COLUMNS]) {
    const int in_tile = row_of(i), row = m0 + in_tile, place = row_place[in_tile];
#pragma unroll
    for (int j = 0; j < COLUMNS; j += N) {
      const int col = n0 + column_of(j);
      float v[N];
#pragma unroll
      for (int e = 0; e < N; e++) v[e] = row_sums[j + e];
      if constexpr (PARTIAL)
        run.store_part(v, layer_part, row, col);
      else if (place != NOWHERE)
        run.finish(v, place, col, group);
    }
  };
  if constexpr (FUSED && !PARTIAL) {
    // Such results are long: the text has those of one row, to which the rows below move up.
#pragma unroll 1
    for (int i = 0; i < ROWS; i++) {
      finish_row(i, sums[0]);
#pragma unroll
      for (int below = 1; below < ROWS; below++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) sums[below - 1][j] = sums[below][j];
    }
  } else {
#pragma unroll
    for (int i = 0; i < ROWS; i++) finish_row(i, sums[i]);
  }
  repair();
}
} // namespace @SYM@_scope
} // namespace ts_mma
