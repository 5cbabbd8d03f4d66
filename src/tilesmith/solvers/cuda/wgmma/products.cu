// The products of a step of the ring, added to a warpgroup's sums.
constexpr ts_u64 A_LAYOUT = A_BY_COLUMNS ? ts_descriptor(A_SLAB, 1024, 128) : ts_descriptor(16, 8 * SPAN, SPAN);
constexpr ts_u64 B_LAYOUT = B_BY_COLUMNS ? ts_descriptor(B_SLAB, 16 * SLAB_COLS, 2 * SLAB_COLS) : ts_descriptor(16, 8 * SPAN, SPAN);
constexpr ts_u64 A_NEXT = A_BY_COLUMNS ? 128 : 2, B_NEXT = B_BY_COLUMNS ? 2 * SLAB_COLS : 2; // the next 16 of k
using Sums = Sum[MI][BLOCK_N / 2];

// NOTE: the tensor cores add products of bytes with 13 bits of fraction. Sums of 128 products at most are added to fp32
// ones, while the other warpgroups multiply.
TS_DEVICE void add_promoted(const Block &my, const Work &w, ts_u32 a, ts_u32 b, ts_u32 stage, Sums &sums) {
  Sum few[PRODUCT_N / 2];
  ts_sums_begin(few);
#pragma unroll
  for (int i = 0; i < PARTS * MI * PIECES; i++) {
    const int part = i / (MI * PIECES), m = i / PIECES % MI, piece = i % PIECES;
    const ts_u64 ad = ts_at(A_LAYOUT, a + part * A_PART + m * A_SLAB);
    const ts_u64 bd = ts_at(B_LAYOUT, b + part * B_PART + piece * PRODUCT_N * SPAN);
    ts_product_fence();
#pragma unroll
    for (int j = 0; j < SPAN / 32; j++) product(few, ad + j * A_NEXT, bd + j * B_NEXT, j != 0);
    ts_product_commit();
    const int column = w.n * BLOCK_N + piece * PRODUCT_N;
    float of_rows[2], of_columns[COLUMN_FACTORS]; // of each column, or of two blocks
    if (BLOCKWISE) {
      const ts_u32 from = my.factors + stage * FACTOR_STAGE + part * (FACTOR_STAGE / PARTS), behind = from + BLOCK_M * 4;
      const int row = (PINGPONG ? 0 : my.wg * WG_ROWS) + m * 64 + my.warp * 16 + (my.lane >> 2);
      of_rows[0] = factor_at(from, row), of_rows[1] = factor_at(from, row + 8);
      const int first = column / COLUMNS_SHARE - w.n * BLOCK_N / COLUMNS_SHARE;
#pragma unroll
      for (int j = 0; j < COLUMN_FACTORS; j++)
        of_columns[j] = factor_at(behind, COLUMNS_SHARE > 1 ? first + j : first + j / 2 * 8 + (my.lane & 3) * 2 + j % 2);
    }
    ts_product_wait<0>();
    ts_sums_ready(few);
    if (i == PARTS * MI * PIECES - 1) release(empty(my, stage), my.thread);
    Sum *to = sums[m] + piece * (PRODUCT_N / 2);
    if (BLOCKWISE) {
      add_scaled(to, few, of_rows, of_columns, COLUMNS_SHARE - column % COLUMNS_SHARE);
      continue;
    }
#pragma unroll
    for (int j = 0; j < PRODUCT_N / 2; j++) to[j] += few[j];
  }
}

TS_DEVICE void add_read_by_lanes(const Block &my, ts_u32 a, ts_u32 b, ts_u32 stage, bool first, Sums &sums) {
#pragma unroll
  for (int part = 0; part < PARTS; part++) {
    ts_u32 held[MI][SPAN / 32][4];
#pragma unroll
    for (int i = 0; i < MI * (SPAN / 32) * 4; i++) {
      const int m = i / (SPAN / 8), j = i / 4 % (SPAN / 32), e = i % 4;
      const int depth = (my.lane & 3) + e / 2 * 4, row = my.warp * 16 + (my.lane >> 2) + e % 2 * 8, in_line = row % LINE;
      const ts_u32 line = a + m * A_SLAB + row / LINE * (BLOCK_K * 128) + (part * PART_K + j * 8 + depth) * 128;
      held[m][j][e] = ts_shared_load(line + ((in_line / 4 ^ depth) << 4) + in_line % 4 * 4);
    }
    ts_product_fence();
#pragma unroll
    for (int i = 0; i < MI * (SPAN / 32); i++) {
      const int m = i % MI, j = i / MI;
      product(sums[m], held[m][j], ts_at(B_LAYOUT, b + part * B_PART) + j * B_NEXT, !first || part + j != 0);
    }
    ts_product_commit();
    ts_product_wait<0>();
    ts_sums_ready(sums);
  }
  ts_named_sync(2 + my.wg, 128); // until all warps have read
  release(empty(my, stage), my.thread);
}

// What begins here has not ended yet.
TS_DEVICE void begin_products(ts_u32 a, ts_u32 b, bool first, Sums &sums) {
  ts_product_fence();
#pragma unroll
  for (int i = 0; i < BLOCK_K * SIZE / 32; i++) {
    const int part = i / (SPAN / 32), inner = i % (SPAN / 32);
    const int a_at = A_BY_COLUMNS ? 0 : part * A_PART, b_at = B_BY_COLUMNS ? 0 : part * B_PART;
    const ts_u64 bd = ts_at(B_LAYOUT, b + b_at) + (B_BY_COLUMNS ? i : inner) * B_NEXT;
#pragma unroll
    for (int m = 0; m < MI; m++)
      product(sums[m], ts_at(A_LAYOUT, a + m * A_SLAB + a_at) + (A_BY_COLUMNS ? i : inner) * A_NEXT, bd, !first || i != 0);
  }
  ts_product_commit();
}
