// Convolution of few input channels. A product's k are four units of the window, one for each lane of a row, in any
// place: so any stride and dilation reads whole units, and no patch is ever copied.
constexpr int STEPS = UNITS / 4, TILES_N = BLOCK_N / 8;
constexpr int WEIGHTS = STEPS * BLOCK_N * 32, BIASES = (BLOCK_N * 4 + 127) / 128 * 128;
constexpr int ROW = (BLOCK_N * (int)sizeof(Out) / 16 | 1) * 16; // an odd number of 16 bytes: no bank is met twice
constexpr int TILES = WEIGHTS + BIASES, STAGED = TILES + 2 * TILE;
static_assert(STAGED + WARPS * 16 * ROW == SHARED_BYTES, "weights, biases, two tiles, rows of results");
static_assert(WARPS * PARTS * 16 == TILE_H * TILE_W, "pixels of a tile");

// The block's columns of the filter, as products read them; zeros where units have no tap or channel.
TS_MMA_DEVICE void fill(const Run &run, unsigned char *weights, int column) {
  // Four units at a time, whose loads wait together.
#pragma unroll 1
  for (int next = threadIdx.x; next < BLOCK_N * UNITS; next += 4 * THREADS) {
#pragma unroll
    for (int i = next; i < next + 4 * THREADS; i += THREADS) {
      const int unit = i % UNITS, n = i / UNITS;
      const bool exists = n < BLOCK_N && column + n < run.columns;
      const u32 at = unit_taps[unit];
      const int d = at >> 24, r = at >> 16 & 255, s = at >> 8 & 255, first = (at & 255) * 4;
      const Element *const from =
          run.w + ((i64)(column + n) * run.w_k + (i64)d * run.w_d + (i64)r * run.w_h + (i64)s * run.w_w);
      Pack<Element, 4> v = {};
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int c = TAPS > 1 ? e % C : first + e, away = TAPS > 1 ? e / C : 0;
        if (at != ~0u && exists && s + away < S && c < C)
          v.v[e] = from[(i64)away * run.w_w + (i64)c * run.w_c];
      }
      if constexpr (BIAS_UNIT >= 0)
        if (unit == BIAS_UNIT && exists) v.v[0] = *(const Element *)(run.bias + column + n);
      const Pack<u32, 2> words = *(const Pack<u32, 2> *)&v;
      const int step = unit / 4, place = unit % 4;
      if (n >= BLOCK_N) continue;
      if constexpr (WGMMA) {
        // Two matrices of 8 k, each of rows of 16 bytes.
        *(u32 *)(weights + step * BLOCK_N * 32 + n * 16 + place * 4) = words.v[0];
        *(u32 *)(weights + step * BLOCK_N * 32 + BLOCK_N * 16 + n * 16 + place * 4) = words.v[1];
      } else {
        *(Pack<u32, 2> *)(weights + ((step * TILES_N + n / 8) * 32 + n % 8 * 4 + place) * 8) = words;
      }
    }
  }
}

// The warp's 16 x 16 elements of a product: rows `low` and `high` of the window, the lane's unit of the step.
TS_MMA_DEVICE void gather(u32 (&a)[4], const unsigned char *low, const unsigned char *high, int step, int place) {
  // Few ways to lie relative to the first lane's unit: their addresses are the same for many steps.
  const int from = lane_at(way_of(step), place), at = step_at(step);
  const Pack<u32, 2> first = *(const Pack<u32, 2> *)(low + from + at);
  const Pack<u32, 2> second = *(const Pack<u32, 2> *)(high + from + at);
  a[0] = first.v[0], a[1] = second.v[0], a[2] = first.v[1], a[3] = second.v[1];
  if (masked(step)) {
    // What has no tap may be no number: it must not meet the filter's zeros.
    const u32 keep_low = unit_mask(step, place, 0), keep_high = unit_mask(step, place, 1);
    a[0] &= keep_low, a[1] &= keep_low, a[2] &= keep_high, a[3] &= keep_high;
  }
  if (BIAS_UNIT >= 0 && step == BIAS_UNIT / 4) { // a one, which meets the bias
    const u32 one = place == BIAS_UNIT % 4 ? ONE : 0;
    a[0] |= one, a[1] |= one;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) @SYM@(TS_PARAMETERS) {
  extern __shared__ __align__(128) unsigned char memory[];
  const Run run = TS_RUN;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, place = lane % 4;
  const int column = blockIdx.x % run.blocks_n * BLOCK_N, stride = gridDim.x / run.blocks_n;
  float *const biases = (float *)(memory + WEIGHTS);
  launch_next();
  wait_previous();
  const Places places = places_of(run);
  Pack<Element, 4> units[LOADS];
  // Pixels of the tile by warps: a warpgroup has 64 in a row.
  const int first = warp / 4 * PARTS * 64 + warp % 4 * 16, between = 64;
  int rows[PARTS][2];
#pragma unroll
  for (int i = 0; i < PARTS; i++)
#pragma unroll
    for (int half = 0; half < 2; half++) rows[i][half] = place_of(first + i * between + half * 8 + group);
  unsigned char *const staged = memory + STAGED + warp * 16 * ROW;
  // The loop fetches the first tile as well: such long texts are there once.
  const int start = blockIdx.x / run.blocks_n - stride;
#pragma unroll 1
  for (int now = 1, tile = start; tile < run.tiles; tile += stride, now ^= 1) {
    const bool more = tile + stride < run.tiles;
    if (more) fetch(run, places, tile + stride, units);
    if (tile < 0) {
      fill(run, memory, column);
      for (int i = threadIdx.x; ADDS && i < BLOCK_N; i += THREADS)
        biases[i] = column + i < run.columns ? widened(run.bias[column + i]) : 0.0f;
      put(memory + TILES, units);
      if constexpr (WGMMA) weights_written();
      __syncthreads();
      continue;
    }
    const unsigned char *const from = memory + TILES + now * TILE;
    float sums[PARTS][TILES_N * 4];
    if constexpr (WGMMA) {
      multiply_all<PARTS>(sums, memory, from, rows, place);
    } else {
#pragma unroll
      for (int i = 0; i < PARTS; i++)
#pragma unroll
        for (int j = 0; j < TILES_N * 4; j++) sums[i][j] = 0.0f;
#pragma unroll
      for (int step = 0; step < STEPS; step++) {
        u32 a[PARTS][4];
#pragma unroll
        for (int i = 0; i < PARTS; i++) gather(a[i], from + rows[i][0], from + rows[i][1], step, place);
#pragma unroll
        for (int j = 0; j < TILES_N; j++) {
          const Pack<u32, 2> b = *(const Pack<u32, 2> *)(memory + ((step * TILES_N + j) * 32 + lane) * 8);
#pragma unroll
          for (int i = 0; i < PARTS; i++)
            multiply(Element(), *(float(*)[4])(sums[i] + j * 4), a[i], b.v[0], b.v[1]);
        }
      }
    }
    if (more) put(memory + TILES + (now ^ 1) * TILE, units);
    const Tile t = tile_of(run, tile);
    Out *const results = run.y + (i64)t.n * run.y_n + (i64)t.d * run.y_d;
#if IN_TURNS
    // The text has the results of one part, to whose registers the others move.
    const int first_of_all = first;
#pragma unroll 1
    for (int turn = 0; turn < PARTS; turn++) {
#pragma unroll
      for (int known = 1; known < PARTS; known++)
        if (turn == known) {
          asm volatile(""); // a branch: selections would take place in every turn
#pragma unroll
          for (int j = 0; j < TILES_N * 4; j++) sums[0][j] = sums[known][j];
        }
      constexpr int i = 0;
      const int first = first_of_all + turn * between;
#else
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
#endif
      __syncwarp();
#pragma unroll
      for (int j = 0; j < TILES_N; j++) {
        const int at = j * 8 + place * 2;
        Pack<float, 2> bias = {};
        if constexpr (ADDS) bias = *(const Pack<float, 2> *)(biases + at);
#pragma unroll
        for (int half = 0; half < 2; half++) {
          float v[2];
#pragma unroll
          for (int e = 0; e < 2; e++) {
            v[e] = sums[i][j * 4 + half * 2 + e];
            if constexpr (ADDS) v[e] += bias.v[e];
            if constexpr (!RELU) v[e] = activate(v[e]);
          }
          Pack<Out, 2> &to = *(Pack<Out, 2> *)(staged + (half * 8 + group) * ROW + at * (int)sizeof(Out));
          if constexpr (RELU)
            to = narrowed_relu(Out(), v[0], v[1]);
          else
            to = narrowed(Out(), v[0], v[1]);
        }
      }
      __syncwarp();
      constexpr int CHUNKS = BLOCK_N / OUT_VECTOR;
      constexpr bool REGULAR = TILE_W % 16 == 0 && 32 % CHUNKS == 0;
      const int h = t.h + (first + i * between) / TILE_W, w = t.w + (first + i * between) % TILE_W;
      Out *const to = results + ((i64)h * run.y_h + (i64)w * run.y_w + column);
#pragma unroll
      for (int k = 0; k < (16 * CHUNKS + 31) / 32; k++) {
        const int item = k * 32 + lane, row = item / CHUNKS, at = item % CHUNKS * OUT_VECTOR;
        const Pack<Out, OUT_VECTOR> v = *(const Pack<Out, OUT_VECTOR> *)(staged + row % 16 * ROW + at * (int)sizeof(Out));
        if constexpr (REGULAR) {
          // The rows of a part lie in one row of the image.
          const bool mine = CHUNKS % 2 == 0 || row < 16; // of one chunk a row, half of the lanes have all
          const bool inside = WHOLE || (h < run.out_h && w + row < run.out_w && column + at < run.columns);
          if (mine && inside) *(Pack<Out, OUT_VECTOR> *)(to + row * run.y_w + at) = v;
        } else {
          const int pixel = first + i * between + row, y = t.h + pixel / TILE_W, x = t.w + pixel % TILE_W;
          if (row >= 16 || y >= run.out_h || x >= run.out_w || column + at >= run.columns) continue;
          *(Pack<Out, OUT_VECTOR> *)(results + (i64)y * run.y_h + (i64)x * run.y_w + column + at) = v;
        }
      }
    }
    __syncthreads();
  }
}
