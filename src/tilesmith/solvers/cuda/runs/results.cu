// dy as products of 16 x 8 take it: for each row, tile, block of columns and 16 pixels, a lane's two words of 8 columns.
// What does not exist is zero.
constexpr int TILES_N = BLOCK_N / 8;

extern "C" __global__ void __launch_bounds__(256) @SYM@(TS_PARAMETERS) {
  const Run run = TS_RUN;
  const int at = blockIdx.x * 256 + threadIdx.x;
  launch_next();
  wait_previous();
  if (at >= run.words) return;
  const int half = at % 2, lane = at / 2 % 32, j = at / 64 % TILES_N, k = at / (64 * TILES_N) % (TILE_W / 16);
  const int of_block = at / (4 * TILE_W * TILES_N), of_tile = divided(of_block, run.blocks_n_m, run.blocks_n_s);
  const int block = of_block - of_tile * run.blocks_n, line = divided(of_tile, run.tiles_w_m, run.tiles_w_s);
  const int tile = of_tile - line * run.tiles_w, image = divided(line, run.out_h_m, run.out_h_s);
  const int h = line - image * run.out_h, of_n = divided(image, run.out_d_m, run.out_d_s);
  const int w = tile * TILE_W + k * 16 + half * 8 + lane % 4 * 2, n = block * BLOCK_N + j * 8 + lane / 4;
  const Element *const from = run.dy + ((i64)of_n * run.y_n + (i64)(image - of_n * run.out_d) * run.y_d +
                                        (i64)h * run.y_h + (i64)w * run.y_w + n);
  Pack<Element, 2> v = {};
  if (n < COLS && w < run.out_w) v.v[0] = from[0];
  if (n < COLS && w + 1 < run.out_w) v.v[1] = from[run.y_w];
  ((Pack<Element, 2> *)run.to)[at] = v;
}
