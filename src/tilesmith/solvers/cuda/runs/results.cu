// dy as products of 16 x 8 take it: for each row, tile, block of columns and 16 pixels, a lane's two words of 8 columns.
// What does not exist is zero.
constexpr int TILES_N = BLOCK_N / 8;

extern "C" __global__ void __launch_bounds__(256) @SYM@(TS_PARAMETERS) {
  const Run run = TS_RUN;
  const int at = blockIdx.x * 256 + threadIdx.x;
  wait_previous();
  if (at >= run.words) return;
  const int half = at % 2, lane = at / 2 % 32, j = at / 64 % TILES_N, k = at / (64 * TILES_N) % (TILE_W / 16);
  const int of_block = at / (4 * TILE_W * TILES_N), block = of_block % run.blocks_n, of_tile = of_block / run.blocks_n;
  const int tile = of_tile % run.tiles_w, line = of_tile / run.tiles_w, h = line % run.out_h, image = line / run.out_h;
  const int w = tile * TILE_W + k * 16 + half * 8 + lane % 4 * 2, n = block * BLOCK_N + j * 8 + lane / 4;
  const Element *const from = run.dy + ((i64)(image / run.out_d) * run.y_n + (i64)(image % run.out_d) * run.y_d +
                                        (i64)h * run.y_h + (i64)w * run.y_w + n);
  Pack<Element, 2> v = {};
  if (n < COLS && w < run.out_w) v.v[0] = from[0];
  if (n < COLS && w + 1 < run.out_w) v.v[1] = from[run.y_w];
  ((Pack<Element, 2> *)run.to)[at] = v;
}
