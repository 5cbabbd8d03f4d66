// Copies of a step's operands into a stage. Blocks of a cluster that share columns (CAST_M of them) bring a part of them
// each to all, or (B_IN_TURNS) all of every CAST_M-th step; so do those that share rows (CAST_N, A_IN_TURNS).
// rank % CAST_M is a block's place along rows of tiles.
TS_DEVICE bool elected() {
  ts_u32 yes;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(yes));
  return yes != 0;
}

TS_DEVICE void load_a(const ts_map *map, ts_u32 to, ts_u32 done, int x, int y, int z, int rank) {
  constexpr int SHARERS = ((1 << CAST) - 1) / ((1 << CAST_M) - 1); // every CAST_M-th block
  if (CAST_N > 1) ts_load3_cast(to, map, done, x, y, z, SHARERS << rank % CAST_M);
  else if (A_ONCE) ts_load3_once(to, map, done, x, y, z);
  else ts_load3(to, map, done, x, y, z);
}
TS_DEVICE void load_b(const ts_map *map, ts_u32 to, ts_u32 done, int x, int y, int z, int rank) {
  constexpr int SHARERS = (1 << CAST_M) - 1;
  if (B_ONCE) ts_load3_once(to, map, done, x, y, z);
  else if (CAST_M > 1) ts_load3_cast(to, map, done, x, y, z, SHARERS << (CAST_N > 1 ? rank / CAST_M * CAST_M : 0));
  else ts_load3(to, map, done, x, y, z);
}

// Those of step `k` of the tile that begins at `row` and `column`; `with_b`: B's, too.
TS_DEVICE void load_matrices(const ts_map *map_a, const ts_map *map_b, ts_u32 a, ts_u32 b, ts_u32 done, int row,
                             int column, int k, int rank, int a_layer, int b_layer, bool with_b) {
  const int at = k * BLOCK_K;
  const int of_a = CAST_N > 1 ? rank / CAST_M : 0, of_b = CAST_N > 1 ? rank % CAST_M : CAST_M > 1 ? rank : 0;
  constexpr int A_SHARES = A_IN_TURNS ? 1 : CAST_N, B_SHARES = B_IN_TURNS ? 1 : CAST_M;
  const int a_share = A_IN_TURNS ? 0 : of_a, b_share = B_IN_TURNS ? 0 : of_b;
  if (A_IN_TURNS && k % CAST_N != of_a) {
  } else if (A_BY_COLUMNS) {
    constexpr int SLABS = BLOCK_M / LINE / A_SHARES;
#pragma unroll
    for (int q = a_share * SLABS; q < (a_share + 1) * SLABS; q++)
      load_a(map_a, a + q * BLOCK_K * 128, done, row + q * LINE, at, a_layer, rank);
  } else {
    const int part = a_share * (BLOCK_M / A_SHARES);
#pragma unroll
    for (int i = 0; i < PARTS; i++)
      load_a(map_a, a + i * A_PART + part * SPAN, done, at + i * PART_K, row + part, a_layer, rank);
  }
  if (!with_b || (B_IN_TURNS && k % CAST_M != of_b)) return;
  if (B_BY_COLUMNS) {
    constexpr int SLABS = B_COLS / SLAB_COLS / B_SHARES;
#pragma unroll
    for (int q = b_share * SLABS; q < (b_share + 1) * SLABS; q++)
      load_b(map_b, b + q * B_SLAB, done, column + q * 64, at, b_layer, rank);
  } else {
    const int part = b_share * (BLOCK_N / B_SHARES);
#pragma unroll
    for (int i = 0; i < PARTS; i++)
      load_b(map_b, b + i * B_PART + part * SPAN, done, at + i * PART_K, column + part, b_layer, rank);
  }
}
