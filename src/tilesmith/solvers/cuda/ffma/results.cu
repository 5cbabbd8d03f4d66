// What the kernel and the sum of its parts share: which steps a block computes, and how a sum becomes a result.
struct Results : Run {
  // The steps of all tiles stand in one row (with stream-k: of those behind the first `waves` of whole tiles), of which
  // block `b` has those from `first_step(b)` to `first_step(b + 1)`.
  // That is block * all_steps / blocks; with stream-k of two parts, so that no division is of 64 bits.
  TS_MMA_METHOD auto first_step(i64 block) const {
    if constexpr (STREAM)
      return (int)block * share + divided((int)block * over, blocks_m, blocks_s);
    else
      return block * all_steps / (i64)blocks;
  }
  TS_MMA_METHOD int block_of(i64 step) const { return (int)(((step + 1) * (i64)blocks - 1) / all_steps); }
  // Where the partial sums of a block's share of a tile lie. A block of stream-k has two such shares at most: that
  // with which it begins, inside of a tile, and that with which it ends.
  TS_MMA_METHOD float *part_of(int block, bool inside) const {
    return partial + (i64)(STREAM ? block * 2 + inside : block) * (BLOCK_M * BLOCK_N);
  }
  // The place of a tile's results; groups of rows of tiles share columns in the L2 cache.
  TS_MMA_METHOD void place(int tile, int &layer, int &m0, int &n0) const {
    layer = divided(tile, tiles_m, tiles_s), tile -= layer * tiles;
    const int nth = divided(tile, band_m, band_s), first_m = nth * walk;
    const bool last = first_m + walk > rows_of_tiles; // which has fewer rows
    tile -= nth * band;
    const int down = last ? last_walk : walk;
    const int across = divided(tile, last ? last_walk_m : walk_m, last ? last_walk_s : walk_s);
    m0 = (first_m + tile - across * down) * BLOCK_M, n0 = across * BLOCK_N;
  }
  TS_MMA_METHOD i64 place_of(int layer, int row, int col) const {
    return layer * out_group + (i64)row * out_line + (i64)col * column_step();
  }
  TS_MMA_METHOD int column_step() const { return OUT_DENSE ? 1 : out_column; }
  // Stores the results of four neighbouring columns, of which `left` exist if the row does, from `out` on.
  TS_MMA_METHOD void finish(const float (&sums)[4], Out *out, int col, bool row_exists, int left) const {
    constexpr int N = OUT_VECTOR < 4 ? OUT_VECTOR : 4;
#pragma unroll
    for (int part = 0; part < 4; part += N) {
      if (!row_exists || part >= left) continue;
      Out *const at = out + (i64)part * column_step();
      Pack<Out, N> old, given, result;
      if constexpr (BETA) old = *(const Pack<Out, N> *)at;
      if constexpr (RESIDUAL) given = *(const Pack<Out, N> *)(residual_base + (at - out_base));
#pragma unroll
      for (int e = 0; e < N; e++) {
        float v = sums[part + e];
        if constexpr (SCALED) v *= alpha;
        if constexpr (BETA) v = fmaf(beta, widened(old.v[e]), v);
        if constexpr (BIAS) v += widened(bias_base[col + part + e]);
        if constexpr (RESIDUAL) v += widened(given.v[e]);
        narrow(result.v[e], activate(v));
      }
      *(Pack<Out, N> *)at = result;
    }
  }
};
