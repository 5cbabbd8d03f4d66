constexpr int COLUMNS = TAPS_EACH * SLAB_COLS, QUADS = COLUMNS / 8; // of a product; groups of four sums a thread
static_assert(BLOCK_QUADS == K_GROUPS * LINE_GROUPS * LINES_EACH * QUADS * 128, "as counted");

// A block's share of the filter: blocks of K and C, a plane of taps, and some of the plane's lines.
struct Unit {
  int g, k, c, t, lines;
};
TS_DEVICE Unit unit_at(const Run &run, int k, int rest) {
  Unit u;
  u.g = GROUPED ? ts_quotient(rest, run.by_rest_each) : 0;
  if (GROUPED) rest -= u.g * run.rest_each;
  const int next = ts_quotient(rest, run.by_blocks_c);
  u.k = k, u.c = rest - next * run.blocks_c, u.t = next / LINE_PARTS;
  u.lines = (next - u.t * LINE_PARTS) * LINE_GROUPS * LINES_EACH;
  return u;
}

// The sum as it is defined: zeros between the rows of a tile met a NaN or an Inf of x.
TS_DEVICE float exact(const Run &run, int g, int k, int c, int t, int r, int s) {
  float sum = 0.0f;
  for (int n = 0; n < run.images; n++)
    for (int d = 0; d < run.base_d; d++)
      for (int h = 0; h < run.base_h; h++) {
        const int z = d + t * run.dilation_d + run.corner_d, y = h + r * run.dilation_h + run.corner_h;
        const bool inside = z >= 0 && z < run.in_size_d && y >= 0 && y < run.in_size_h;
        const Element *dy = run.dy + n * run.dy_n + d * run.dy_d + h * run.dy_h + g * run.rows + k;
        const Element *x = run.x + n * run.x_n + z * run.x_d + y * run.x_h + g * run.channels + c;
        float row = 0.0f;
        for (int w = 0; w < run.base_w; w++) {
          const int at = w + s * run.dilation_w + run.corner_w;
          const float by = inside && at >= 0 && at < run.in_size_w ? ts_float(x[at * run.x_w]) : 0.0f;
          row = fmaf(ts_float(dy[w * run.dy_w]), by, row);
        }
        sum += row;
        if (sum != sum) return sum;
      }
  return sum;
}

// Where four sums of a thread of warpgroup `wg` belong: two neighbours of a row, and of the eighth row from there.
struct Spot {
  int k, c, r, s;
  bool any, both; // both rows
  Out *at;
};
TS_DEVICE Spot spot_of(const Run &run, const Unit &u, int wg, int quad, int thread) {
  const int column = quad % QUADS * 8, line = u.lines + wg / K_GROUPS * LINES_EACH + quad / QUADS;
  const int across = line / LINE_PIECES, along = line % LINE_PIECES * TAPS_EACH + column / SLAB_COLS;
  const int row = (thread >> 5) * 16 + (thread >> 2 & 7);
  Spot p;
  p.r = K_COLS == 32 ? across * 2 + (row < 32) : ALONG_H ? along : across, p.s = ALONG_H ? across : along;
  p.c = u.c * SLAB_COLS + column % SLAB_COLS + 2 * (thread & 3);
  p.k = (u.k * K_GROUPS + wg % K_GROUPS) * K_COLS + row % K_COLS;
  p.any = p.r < FILTER_H && p.s < FILTER_W && p.c < run.channels && p.k < run.rows, p.both = p.k + 8 < run.rows;
  p.at = run.out + (u.g * run.rows + p.k) * run.out_row + ((u.t * FILTER_H + p.r) * FILTER_W + p.s) * run.out_tap + p.c;
  return p;
}

// Stores four sums; whether one is NaN.
TS_DEVICE bool finish(const Run &run, const Unit &u, int wg, int quad, int thread, float4 v) {
  const Spot p = spot_of(run, u, wg, quad, thread);
  if (!p.any) return false;
  ts_store_pair(p.at, v.x, v.y);
  if (p.both) ts_store_pair(p.at + 8 * run.out_row, v.z, v.w);
  const float probe = fmaf(v.x, 0.0f, fmaf(v.y, 0.0f, fmaf(v.z, 0.0f, v.w * 0.0f)));
  return probe != probe;
}

// Adds up anew those of four results that are NaN.
TS_DEVICE void mend(const Run &run, const Unit &u, int wg, int quad, int thread) {
  const Spot p = spot_of(run, u, wg, quad, thread);
#pragma unroll 1
  for (int i = 0; p.any && i < (p.both ? 4 : 2); i++) {
    Out *at = p.at + (i >> 1) * 8 * run.out_row + (i & 1);
    const float found = ts_fresh(at);
    if (found != found) ts_narrow(at, exact(run, u.g, p.k + (i >> 1) * 8, p.c + (i & 1), u.t, p.r, p.s));
  }
}
