// Sums of 128 products may have factors: of their row and of their column, or of 128 rows or columns.
// Three warps of the copying warpgroup bring them to shared memory: read from global memory by those who multiply, each
// step waited for them.
constexpr int PIECES = BLOCK_N / PRODUCT_N, COLUMN_FACTORS = COLUMNS_SHARE == 1 ? PRODUCT_N / 4 : 2;
constexpr bool PARTED = COLUMNS_SHARE % PRODUCT_N != 0; // a product has columns of two blocks
constexpr int OF_COLUMNS = COLUMNS_SHARE == 1 ? BLOCK_N : BLOCK_N / COLUMNS_SHARE + 2, FACTOR_THREADS = BLOCKWISE ? 96 : 0;

TS_DEVICE const float *row_factor(const Run &run, int row, int block) {
  return run.row_factors + (row < run.rows ? row : run.rows - 1) / ROWS_SHARE * run.row_step + block * run.row_along;
}
TS_DEVICE const float *column_factor(const Run &run, int column, int block) {
  const int at = (column < run.cols ? column : run.cols - 1) / COLUMNS_SHARE;
  return run.column_factors + at * run.column_step + block * run.column_along;
}
// Adds `few` to `sums`, each times its factors. The columns from `left` on are those of the next block.
TS_DEVICE void add_scaled(Sum *sums, const Sum *few, const float (&of_rows)[2], const float (&of_columns)[COLUMN_FACTORS],
                          int left) {
#pragma unroll
  for (int j = 0; j < PRODUCT_N / 8; j++) {
    const bool first = !PARTED || j * 8 < left;
    const float a = COLUMNS_SHARE == 1 ? of_columns[2 * j % COLUMN_FACTORS] : first ? of_columns[0] : of_columns[1];
    const float b = COLUMNS_SHARE == 1 ? of_columns[(2 * j + 1) % COLUMN_FACTORS] : a;
#pragma unroll
    for (int e = 0; e < 4; e++) sums[4 * j + e] += few[4 * j + e] * (of_rows[e / 2] * (e % 2 ? b : a));
  }
}

TS_DEVICE void copy_factor(ts_u32 to, const float *from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
TS_DEVICE float factor_at(ts_u32 from, int i) { return __uint_as_float(ts_shared_load(from + i * 4)); }
