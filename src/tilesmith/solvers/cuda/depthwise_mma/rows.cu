constexpr int LANES = 32, CHANNELS = PLANES * 4;
constexpr int PLANE = plane_bytes(PIXELS), ROW = UNITS * PLANES * PLANE, STAGE = GROUPS * ROWS_IN * ROW;
// Results of a stage lie pixel by pixel; the gap keeps neighbouring pixels in different banks.
constexpr int PIXEL_OUT = CHANNELS * (int)sizeof(Out) + 8, STAGED = GROUPS * UNITS * COLUMNS * PIXEL_OUT;
constexpr int FILTER_COLUMNS = 4 * STEPS + STRIDE_W, FILTER = HELD ? 0 : PLANES * KD * R * FILTER_COLUMNS * 16;
constexpr int RESULTS = STAGES * STAGE, FILTERS = RESULTS + 2 * STAGED;
static_assert(FILTERS + FILTER == SHARED_BYTES, "the ring, two stages of results, the filter");
constexpr int HELD_TAPS = HELD ? KD * R * STEPS : 1, CHUNK = HELD ? R : 8;

// A product: 16 pairs of neighbouring results of four channels (rows: pairs, columns: 2 x 4), from four pixels of these
// channels. The other operand holds an element of the filter where channels agree, else zero. A row of inputs is
// multiplied by all rows of the filter, and adds to as many rows of results, which then move up by one.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) @SYM@(TS_PARAMETERS) {
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ Unit units[UNITS];
  const Run run = TS_RUN;
  const int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES, quad = lane / 4, place = lane % 4;
  const int team = divided(blockIdx.x, run.channel_blocks_m, run.channel_blocks_s), c_block = (blockIdx.x - team * run.channel_blocks) * CHANNELS;
  const int p0 = blockIdx.y * run.strip_rows, rows = smaller(run.strip_rows, run.out_h - p0);
  const int groups = rows + LIVE - 1;
  if (threadIdx.x < UNITS) units[threadIdx.x] = unit_at(run, team * UNITS + threadIdx.x);
  wait_previous();

  // The operand of the filter: this lane's column is (pixel `second`, channel `c`).
  const int second = quad / 4, c = quad % 4, c_filter = c_block + warp * 4 + c;
  const bool holds = place % 2 == c / 2 && c_filter < run.channels;
  // What does not exist is zero. It is loaded nonetheless, from the filter's first column, and not behind a branch: many
  // loads are on their way at once.
  auto column_exists = [&](int column) {
    return column >= 0 && column % DILATION_W == 0 && column / DILATION_W < S;
  };
  auto place_of = [&](int column, int channel, bool exists) {
    const int s = column / DILATION_W;
    return exists ? channel * run.w_channel + (FLIP ? S - 1 - s : s) * run.w_column : 0;
  };
  auto element = [&](int kd, int r, i64 place, bool exists) {
    const int a = FLIP ? KD - 1 - kd : kd, b = FLIP ? R - 1 - r : r;
    Element v = run.w[place + (a * run.w_depth + b * run.w_row)];
    v.bits = exists ? v.bits : 0;
    return v;
  };
  // The bias of this lane's sums, read beside the filter: converted here, it would be waited for.
  Out of_channels[2] = {};
  const int c_out = warp * 4 + place % 2 * 2; // of the first sum, in the block
  if constexpr (BIAS)
    if (c_block + c_out < run.channels)
      for (int v = 0; v < 2; v++) of_channels[v] = run.bias[c_block + c_out + v];
  u32 held[HELD_TAPS][2] = {};
  bool odd_filter = false;
  u32 *const table = (u32 *)(memory + FILTERS) + (HELD ? 0 : warp * KD * R * FILTER_COLUMNS * 4);
  if constexpr (HELD) {
#pragma unroll
    for (int k = 0; k < STEPS; k++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int column = 4 * k + place / 2 + 2 * half - second * STRIDE_W;
        const bool exists = holds && column_exists(column);
        const i64 from = place_of(column, c_filter, exists);
#pragma unroll
        for (int tap = 0; tap < KD * R; tap++) {
          const Element v = element(tap / R, tap % R, from, exists);
          held[tap * STEPS + k][half] = (u32)v.bits << (c % 2 * 16);
          odd_filter |= !finite(v);
        }
      }
  } else {
#pragma unroll 8
    for (int i = lane; i < KD * R * FILTER_COLUMNS * 4; i += LANES) {
      const int line = i / FILTER_COLUMNS, tap = line / 4, channel = c_block + warp * 4 + line % 4;
      const int column = i % FILTER_COLUMNS - STRIDE_W;
      const bool exists = channel < run.channels && column_exists(column);
      const Element v = element(tap / R, tap % R, place_of(column, channel, exists), exists);
      table[(tap * FILTER_COLUMNS + i % FILTER_COLUMNS) * 4 + line % 4] = (u32)v.bits << (line % 2 * 16);
      odd_filter |= !finite(v);
    }
  }
  // Rows outside the image are zeros. They meet the filter, unless nothing can come of it.
  const bool meets_zeros = __syncthreads_or(!BACK && odd_filter) != 0;

  const Image image = {run.x,    run.in_n, run.in_depth, run.in_row, run.in_column,
                       run.in_d, run.in_h, run.in_w};
  const int plane = threadIdx.x % PLANES, c_plane = c_block + plane * 4;
  const u32 ring = shared_address(memory);
  Copies<PIXELS> copies(image, units, c_plane < run.channels ? c_plane : -1, STRIDE_W, PAD_W, STRIDE_D, PAD_D);
  copies.advance(image, p0 * STRIDE_H - PAD_H);
  // Stages are fetched in their order.
  auto fetch = [&](int stage, int slot) {
#if ONCE_IN_TEXT
#pragma unroll 2
#else
#pragma unroll
#endif
    for (int group = 0; group < GROUPS; group++)
#pragma unroll
      for (int sub = 0; sub < ROWS_IN; sub++) {
        const int at = stage * GROUPS + group, e = sub % STRIDE_H;
        if (row_used(e) && at < groups)
          copies.row(image, ring + slot * STAGE + (group * ROWS_IN + sub) * ROW, (p0 + at) * STRIDE_H + e - PAD_H,
                     group * STRIDE_H + e, true, sub / STRIDE_H * DILATION_D);
      }
    copies.advance(image, GROUPS * STRIDE_H);
  };

  auto by_definition = [&](int n, int d, int h, int w, int channel) {
    float sum = 0.0f;
#pragma unroll 1
    for (int tap = 0; tap < KD * R * S; tap++) {
      const int s = tap % S, r = tap / S % R, kd = tap / S / R;
      const int a = d * STRIDE_D + kd * DILATION_D - PAD_D, b = h * STRIDE_H + r * DILATION_H - PAD_H,
                e = w * STRIDE_W + s * DILATION_W - PAD_W;
      const bool exists = (u32)a < (u32)run.in_d && (u32)b < (u32)run.in_h && (u32)e < (u32)run.in_w;
      if (BACK && !exists) continue;
      float v = 0.0f;
      if (exists)
        v = widened(run.x[n * run.in_n + a * run.in_depth + b * run.in_row + e * run.in_column + channel]);
      sum = fmaf(v, widened(element(kd, r, place_of(s * DILATION_W, channel, true), true)), sum);
    }
    return sum;
  };
  const float biases[2] = {widened(of_channels[0]), widened(of_channels[1])};

  // To global memory, whole pixels at a time.
  Out *to[PRODUCTS]; // in the first row of the next stage
  u32 stores = 0;    // which of them exist
#pragma unroll
  for (int m = 0; m < PRODUCTS; m++) {
    const int pixel = threadIdx.x / PLANES + m * LANES, column = pixel % COLUMNS;
    const Unit u = units[pixel / COLUMNS];
    if (u.n >= 0 && u.column + column < run.out_w && c_plane < run.channels) stores |= 1u << m;
    to[m] = run.out + u.n * run.out_n + u.depth * run.out_depth + (i64)(p0 - (LIVE - 1)) * run.out_row +
            (u.column + column) * run.out_column + c_plane;
  }
  const unsigned char *const results_from =
      memory + RESULTS + threadIdx.x / PLANES * PIXEL_OUT + plane * 4 * (int)sizeof(Out);
  auto store = [&](int stage) {
    const unsigned char *const from = results_from + stage % 2 * STAGED;
#pragma unroll
    for (int group = 0; group < GROUPS; group++) {
      const int row = stage * GROUPS + group - (LIVE - 1);
      if (row < 0 || row >= rows) continue;
#pragma unroll
      for (int m = 0; m < PRODUCTS; m++)
#pragma unroll
        for (int half = 0; half < (int)sizeof(Out) / 2; half++)
          if (stores >> m & 1)
            *(Pack<u32, 2> *)(to[m] + group * run.out_row + half * 2) =
                *(const Pack<u32, 2> *)(from + (group * PRODUCTS + m) * LANES * PIXEL_OUT + half * 8);
    }
#pragma unroll
    for (int m = 0; m < PRODUCTS; m++) to[m] += (i64)GROUPS * run.out_row;
  };

  // The pair of results that a lane has of half `at` of its products, in shared memory.
  unsigned char *const results =
      memory + RESULTS + (quad * 2 + place / 2) * PIXEL_OUT + c_out * (int)sizeof(Out);
  auto staged = [&](int stage, int group, int at) {
    const int pixel = (group * UNITS + at / HALVES) * COLUMNS + at % HALVES * 16;
    return (Pack<Out, 2> *)(results + stage % 2 * STAGED + pixel * PIXEL_OUT);
  };
  auto add_residual = [&](int row, int at, float(&v)[2]) {
    const Unit u = units[at / HALVES];
    const int w = u.column + at % HALVES * 16 + quad * 2 + place / 2;
    if (u.n < 0 || w >= run.out_w || c_block + c_out >= run.channels) return;
    const Pack<Out, 2> given =
        *(const Pack<Out, 2> *)(run.residual + u.n * run.out_n + u.depth * run.out_depth + (p0 + row) * run.out_row +
                                w * run.out_column + c_block + c_out);
    v[0] += widened(given.v[0]), v[1] += widened(given.v[1]);
  };
  // Zeros of the filter met what is no number, or Inf, of another channel or pixel; or a result is none indeed.
  auto mend = [&](int stage, int group, int row) {
#pragma unroll 1
    for (int i = 0; i < 4 * PRODUCTS; i++) {
      const Unit u = units[i / 2 / HALVES];
      const int w = u.column + i / 2 % HALVES * 16 + quad * 2 + place / 2, channel = c_block + c_out + i % 2;
      Out *const result = &staged(stage, group, i / 2)->v[i % 2];
      const float before = widened(*result);
      if (before == before || u.n < 0 || w >= run.out_w || channel >= run.channels) continue;
      float v[2] = {by_definition(u.n, u.depth, p0 + row, w, channel), 0.0f};
      if (i % 2) v[1] = v[0];
      if constexpr (RESIDUAL) add_residual(row, i / 2, v);
      float sum = i % 2 ? v[1] : v[0];
      if constexpr (BIAS) sum += i % 2 ? biases[1] : biases[0];
      narrow(*result, activate(sum));
    }
  };

  float sums[LIVE][PRODUCTS][4]; // begin with the bias
#pragma unroll
  for (int i = 0; i < LIVE * PRODUCTS * 4; i++) sums[i / (PRODUCTS * 4)][i / 4 % PRODUCTS][i % 4] = biases[i % 2];
  const int stages = (groups + GROUPS - 1) / GROUPS;
#if ONCE_IN_TEXT
#else
#pragma unroll 1
  for (int s = 0; s < STAGES - 1; s++) {
    if (s < stages) fetch(s, s);
    copy_commit();
  }
#endif
  // Lanes 0-15 hold addresses of rows of a product's first two pixels, the others of the next two.
  const u32 row_from = ring + warp * PLANE + lane % 8 * 2 * STRIDE_W * 8 + lane / 16 * 16;
#if ONCE_IN_TEXT
  // The ring is filled by the loop too, so that copies are there once.
  int slot = 1;
#pragma unroll 1
  for (int stage = 1 - STAGES; stage < stages; stage++) {
    if (stage >= 0) {
      copy_wait<STAGES - 2>();
      __syncthreads();
    }
#else
  int slot = 0;
#pragma unroll 1
  for (int stage = 0; stage < stages; stage++) {
    copy_wait<STAGES - 2>();
    __syncthreads();
#endif
    if (stage + STAGES - 1 < stages) fetch(stage + STAGES - 1, slot == 0 ? STAGES - 1 : slot - 1);
    copy_commit();
#if ONCE_IN_TEXT
    if (stage < 0) {
      slot = slot + 1 == STAGES ? 0 : slot + 1;
      continue;
    }
#endif
    if (stage > 0) store(stage - 1);
    u32 odd_rows = 0; // of the stage
#pragma unroll
    for (int group = 0; group < GROUPS; group++) {
#pragma unroll
      for (int sub = 0; sub < ROWS_IN; sub++) {
        const int e = sub % STRIDE_H, h = (p0 + stage * GROUPS + group) * STRIDE_H + e - PAD_H;
        if (!row_used(e) || ((u32)h >= (u32)run.in_h && !meets_zeros)) continue;
        auto multiply_step = [&](int k) {
          u32 a[PRODUCTS][4];
#pragma unroll
          for (int m = 0; m < PRODUCTS; m++) {
            const int half = 2 * m + lane / 8 % 2; // of the block
            load_tiles<false>(a[m], row_from + slot * STAGE + (group * ROWS_IN + sub) * ROW +
                                        half / HALVES * PLANES * PLANE + half % HALVES * 16 * STRIDE_W * 8 + k * 32);
          }
#pragma unroll
          for (int first = 0; first < R; first += CHUNK) {
            // Where rows of the filter are many, most of the rows of results that they reach are another block's.
            const int behind = stage * GROUPS + group - first * DILATION_H / STRIDE_H;
            if (!HELD && (behind < 0 || behind - (CHUNK - 1) * DILATION_H / STRIDE_H > rows)) continue;
#pragma unroll
            for (int r = first; r < first + CHUNK && r < R; r++) {
              if (!reads(r, e)) continue;
              const int tap = sub / STRIDE_H * R + r;
              u32 b[2];
              if constexpr (HELD) {
                b[0] = held[HELD ? tap * STEPS + k : 0][0], b[1] = held[HELD ? tap * STEPS + k : 0][1];
              } else {
                const u32 *const at =
                    table + (tap * FILTER_COLUMNS + 4 * k + place / 2 + (1 - second) * STRIDE_W) * 4 + c;
                b[0] = holds ? at[0] : 0, b[1] = holds ? at[8] : 0;
              }
#pragma unroll
              for (int m = 0; m < PRODUCTS; m++)
                multiply(Element(), sums[LIVE - 1 - r * DILATION_H / STRIDE_H][m], a[m], b[0], b[1]);
            }
          }
        };
        if constexpr (HELD) {
#pragma unroll
          for (int k = 0; k < STEPS; k++) multiply_step(k);
        } else {
#pragma unroll 1
          for (int k = 0; k < STEPS; k++) multiply_step(k);
        }
      }
      // The first row of sums is complete.
      const int row = stage * GROUPS + group - (LIVE - 1);
      if (row >= 0 && row < rows) {
        bool odd = false;
        auto finish = [&](int at, float(&v)[2]) {
          if constexpr (RESIDUAL) add_residual(row, at, v);
          if constexpr (!RELU) v[0] = activate(v[0]), v[1] = activate(v[1]);
          odd |= v[0] != v[0] || v[1] != v[1];
          if constexpr (RELU)
            *staged(stage, group, at) = narrowed_relu(Out(), v[0], v[1]);
          else
            *staged(stage, group, at) = narrowed(Out(), v[0], v[1]);
        };
        // Long results are once in the text, to which the sums of the next product move.
#pragma unroll IN_TURNS ? 1 : PRODUCTS
        for (int m = 0; m < PRODUCTS; m++) {
          float v[2][2];
#pragma unroll
          for (int half = 0; half < 2; half++) {
            v[half][0] = sums[0][IN_TURNS ? 0 : m][half * 2], v[half][1] = sums[0][IN_TURNS ? 0 : m][half * 2 + 1];
            finish(2 * m + half, v[half]);
          }
          if constexpr (IN_TURNS)
#pragma unroll
            for (int i = 0; i + 1 < PRODUCTS; i++)
#pragma unroll
              for (int e = 0; e < 4; e++) sums[0][i][e] = sums[0][i + 1 < PRODUCTS ? i + 1 : i][e];
        }
        odd_rows |= (u32)odd << group;
      }
#pragma unroll
      for (int m = 0; m < PRODUCTS; m++)
#pragma unroll
        for (int v = 0; v < 4; v++) {
#pragma unroll
          for (int i = 0; i + 1 < LIVE; i++) sums[i][m][v] = sums[i + 1 < LIVE ? i + 1 : i][m][v];
          sums[LIVE - 1][m][v] = biases[v % 2];
        }
    }
    // Once in the text, and not in each row.
#pragma unroll 1
    for (int group = 0; odd_rows >> group; group++)
      if (odd_rows >> group & 1) mend(stage, group, stage * GROUPS + group - (LIVE - 1));
    slot = slot + 1 == STAGES ? 0 : slot + 1;
  }
  copy_wait<0>();
  __syncthreads();
  store(stages - 1);
}
