// A tile is a box of positions. Its window, a box of inputs, lies in shared memory with channels in pieces of 16 bytes.
// Without TAPS_ON_N the rows of the product are positions, its columns phases and channels, and it sums over taps and
// channels. With TAPS_ON_N its rows are inputs, its columns taps and channels, and a block walks down a strip of the
// image, TILE_H rows at a turn: results are sums over what it keeps of the last rows of products. With ROWS_ON_N, too,
// its columns are rows of taps, and phases along a row; the product sums over a row's taps.
constexpr int STAGE_BYTES = WINDOW_BYTES + (RESIDENT ? 0 : FILTER_BYTES);
// With one stage (WHOLE) all blocks of channels of a tile are there at once, and its results take their place.
constexpr bool WHOLE = STAGES == 1;
constexpr int RING = WHOLE ? CHUNKS : STAGES, AHEAD = WHOLE ? CHUNKS : STAGES - 1;
constexpr int FILTER_END = RESIDENT ? CHUNKS * FILTER_BYTES : 0;
constexpr int FILTER_AT = WHOLE ? 0 : RING * STAGE_BYTES, RING_AT = WHOLE ? FILTER_END : 0;
constexpr int STAGED_AT = WHOLE ? FILTER_END : FILTER_AT + FILTER_END;
constexpr int ROW_COLUMNS = STRIDE_W * COLS; // of a position, in one row of results
constexpr int KEPT = TILE_H + TAPS_H - 1;    // rows of products, in a ring
constexpr int ROW = TILE_W * ROW_COLUMNS;    // of results, of a tile
// Of a row of taps: columns, and products that are added where results leave.
constexpr int COLUMNS_W = ROWS_ON_N ? STRIDE_W : FILTER_W, ADDED_W = ROWS_ON_N ? 1 : TAPS_W;
constexpr int STAGED_ROWS = TAPS_ON_N ? KEPT * WINDOW_D * WINDOW_W : PRODUCTS_M * WARPS_M * 16;
constexpr int STAGED_BYTES = STAGED_ROWS * STAGED_PITCH * (int)sizeof(Staged) + (BULK ? 16 : 0);
constexpr int BARRIERS_AT =
    STAGED_AT + (WHOLE && RING * STAGE_BYTES > STAGED_BYTES ? RING * STAGE_BYTES : STAGED_BYTES);
static_assert(BARRIERS_AT + (BULK_IN ? CHUNKS * 8 : 0) <= SHARED_BYTES && SHARED_BYTES - BARRIERS_AT < 128,
              "results are staged behind the ring and the filter, or in place of the ring");
static_assert(!WHOLE || !WGMMA, "products of warps");
static_assert(!BULK_IN || (WHOLE && CHANNELS % BLOCK_C == 0), "bulk copies bring whole pixels");
static_assert(!BULK || (STAGED_PITCH == ROW_COLUMNS && PHASE_ROWS == 1), "rows of results are staged as they lie");
static_assert(BLOCK_N % (8 * WARPS_N) == 0 && (TAPS_ON_N || BLOCK_N >= PHASE_ROWS * ROW_COLUMNS), "columns of a warp");
static_assert(!TAPS_ON_N || BLOCK_N >= FILTER_D * FILTER_H * COLUMNS_W * COLS, "all taps are columns");

// The image, and the first position of a tile.
struct Tile {
  int n, d, h, w;
};

// Waits until all but the last `left` groups of copies have landed; at most N.
template <int N> TS_MMA_DEVICE void wait_for(int left) {
  if (N == 0 || left >= N)
    copy_wait<N>();
  else
    wait_for<(N > 0 ? N - 1 : 0)>(left);
}

struct Problem : Run {
  TS_MMA_METHOD Tile tile_of(int i) const {
    const int line = divided(i, tiles_w_m, tiles_w_s), plane = divided(line, tiles_h_m, tiles_h_s);
    const int n = divided(plane, tiles_d_m, tiles_d_s), w = i - line * tiles_w, h = line - plane * tiles_h;
    return {n, first_d + (plane - n * tiles_d) * TILE_D, first_h + h * strip_h, first_w + w * TILE_W};
  }
  // A result is no number: is it one by the definition, which knows no zero weights, nor zeros outside of dy?
  TS_MMA_METHOD float exact(int n, int d, int h, int w, int c) const {
    float sum = 0.0f;
#pragma unroll 1
    for (int tap = 0; tap < FILTER_D * FILTER_H * FILTER_W; tap++) {
      const int kd = tap / (FILTER_H * FILTER_W), kh = tap / FILTER_W % FILTER_H, kw = tap % FILTER_W;
      const int id = d + pad_d - kd, ih = h + pad_h - kh, iw = w + pad_w - kw;
      if (id % STRIDE_D || ih % STRIDE_H || iw % STRIDE_W) continue;
      const int td = id / STRIDE_D, th = ih / STRIDE_H, tw = iw / STRIDE_W;
      const bool inside = (u32)td < (u32)size_d && (u32)th < (u32)size_h && (u32)tw < (u32)size_w;
      if (!TURNED && !inside) continue;
      const Element *const from = source + ((i64)n * in_n + (i64)td * in_d + (i64)th * in_h + (i64)tw * in_w);
      const int fd = TURNED ? FILTER_D - 1 - kd : kd, fh = TURNED ? FILTER_H - 1 - kh : kh;
      const int fw = TURNED ? FILTER_W - 1 - kw : kw;
      const Element *const by =
          filter + ((i64)c * filter_column + (i64)fd * filter_d + (i64)fh * filter_h + (i64)fw * filter_w);
#pragma unroll 1
      for (int k = 0; k < CHANNELS; k++)
        sum = added_product(inside ? widened(from[k]) : 0.0f, widened(by[(i64)k * filter_channel]), sum);
    }
    return sum;
  }
  // Where element `e` of a row of results lies.
  TS_MMA_METHOD int place_in_row(int e) const {
    return DENSE_ROWS ? e : e / COLS * out_w + e % COLS;
  }
  TS_MMA_METHOD float finished(float v, i64 at, int c) const {
    if constexpr (BIAS) v += widened(bias[c]);
    if constexpr (RESIDUAL) v += widened(residual[at]);
    return activate(v);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) @SYM@(TS_PARAMETERS) {
  const Problem run = {TS_RUN};
  extern __shared__ __align__(128) unsigned char memory[];
  const u32 ring = shared_address(memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int block_n = blockIdx.x % BLOCKS_N, first_tile = blockIdx.x / BLOCKS_N, step = gridDim.x / BLOCKS_N;
  const uint4 *const weights = run.packed + (i64)block_n * CHUNKS * BLOCK_N * STEPS * 2;
  if constexpr (BULK_IN) {
    if (threadIdx.x == 0) {
#pragma unroll 1
      for (int chunk = 0; chunk < CHUNKS; chunk++)
        ts_barrier_init(ring + BARRIERS_AT + chunk * 8, WINDOW_D * WINDOW_H);
      ts_barrier_init_done();
    }
    __syncthreads();
  }
  launch_next();
  wait_previous();

  // --- loads ---
  auto load_filter = [&](u32 to, int chunk) {
    const uint4 *const from = weights + (i64)chunk * BLOCK_N * STEPS * 2;
#pragma unroll 4
    for (int i = threadIdx.x; i < BLOCK_N * STEPS * 2; i += THREADS)
      copy_async<16>(to + filter_place(i), from + i, 16);
  };
  auto load_window = [&](u32 to, const Tile &tile, int turn, int chunk) {
    const Element *const image = run.source + (i64)tile.n * run.in_n + chunk * BLOCK_C;
    const int d0 = tile.d - (TAPS_D - 1), h0 = tile.h - (TAPS_H - 1) + turn * TILE_H, w0 = tile.w - (TAPS_W - 1);
    constexpr int EACH = IN_VECTOR == 1 ? 8 : IN_VECTOR, PARTS = BLOCK_C / EACH;
    constexpr int TURNS = (WINDOW_W * PARTS + 31) / 32, AT_ONCE = TURNS <= 8 ? TURNS : 4;
    // A warp takes a row of the window. An address outside of the image is made but not read.
#pragma unroll 1
    for (int row = warp; row < WINDOW_D * WINDOW_H; row += THREADS / 32) {
      const int d = d0 + row / WINDOW_H, h = h0 + row % WINDOW_H;
      const bool seen = (u32)d < (u32)run.size_d && (u32)h < (u32)run.size_h;
      const Element *const line = image + ((i64)d * run.in_d + (i64)h * run.in_h);
#pragma unroll AT_ONCE
      for (int i = 0; i < TURNS; i++) {
        const int x = i * 32 + lane;
        if (WINDOW_W * PARTS % 32 && x >= WINDOW_W * PARTS) break;
        const int pixel = x / PARTS, c = x % PARTS * EACH, w = w0 + pixel;
        int valid = seen && (u32)w < (u32)run.size_w ? EACH : 0;
        if (CHANNELS % BLOCK_C) valid = smaller(valid, larger(CHANNELS - chunk * BLOCK_C - c, 0));
        const Element *const from = line + ((i64)w * run.in_w + c);
        const u32 at = to + place_of(row * WINDOW_W + pixel, c);
        if constexpr (IN_VECTOR == 1) {
          u32 held[8];
#pragma unroll
          for (int e = 0; e < 8; e++)
            held[e] = e < valid ? load_bits<2>(from + e, 2) : 0;
          shared_store16(at, held[0] | held[1] << 16, held[2] | held[3] << 16, held[4] | held[5] << 16,
                         held[6] | held[7] << 16);
        } else {
          copy_async<EACH * 2>(at, from, valid * 2);
        }
      }
    }
  };
  // The same by bulk copies: of rows, where shared memory has them as they lie, else of pixels. A warp brings a row.
  auto bring_window = [&](u32 to, const Tile &tile, int chunk) {
    constexpr int BYTES = BLOCK_C * 2;
    const u32 barrier = ring + BARRIERS_AT + chunk * 8;
    const int w0 = tile.w - (TAPS_W - 1);
    const Element *const image = run.source + (i64)tile.n * run.in_n + chunk * BLOCK_C;
    ts_async_fence(); // what was there before was written otherwise
#pragma unroll 1
    for (int row = warp; row < WINDOW_D * WINDOW_H; row += THREADS / 32) {
      const int d = tile.d - (TAPS_D - 1) + row / WINDOW_H, h = tile.h - (TAPS_H - 1) + row % WINDOW_H;
      const bool seen = (u32)d < (u32)run.size_d && (u32)h < (u32)run.size_h;
      const int begin = seen ? smaller(larger(-w0, 0), WINDOW_W) : WINDOW_W;
      const int end = larger(begin, smaller(run.size_w - w0, WINDOW_W)), first = row * WINDOW_W;
      const Element *const line = image + ((i64)d * run.in_d + (i64)h * run.in_h);
#pragma unroll 1
      for (int i = lane; i < (begin + WINDOW_W - end) * PIECES; i += 32) {
        const int pixel = i / PIECES < begin ? i / PIECES : end - begin + i / PIECES;
        shared_store16(to + place_of(first + pixel, i % PIECES * 8), 0, 0, 0, 0);
      }
      if (lane == 0) ts_expect(barrier, (end - begin) * BYTES);
      __syncwarp();
      if (ROWS_AS_THEY_LIE) {
        if (lane == 0 && begin < end)
          ts_load_run(to + place_of(first + begin, 0), line + (i64)(w0 + begin) * run.in_w, (end - begin) * BYTES,
                      barrier);
        continue;
      }
#pragma unroll 1
      for (int pixel = begin + lane; pixel < end; pixel += 32)
        ts_load_run(to + place_of(first + pixel, 0), line + (i64)(w0 + pixel) * run.in_w, BYTES, barrier);
    }
  };
  Tile next = run.tile_of(first_tile);
  const int most_turns = TAPS_ON_N ? run.turns : 1;
  int next_tile = first_tile, next_turn = 0, next_chunk = 0, next_stage = 0;
  auto load = [&] {
    if (next_tile < run.tiles) {
      const u32 stage = ring + RING_AT + next_stage * STAGE_BYTES;
      if constexpr (BULK_IN)
        bring_window(stage, next, next_chunk);
      else
        load_window(stage, next, next_turn, next_chunk);
      if constexpr (!RESIDENT) load_filter(stage + WINDOW_BYTES, next_chunk);
      if (++next_chunk == CHUNKS) {
        next_chunk = 0;
        if (++next_turn == most_turns) {
          next_turn = 0, next_tile += step;
          next = run.tile_of(next_tile);
        }
      }
      next_stage = next_stage + 1 == RING ? 0 : next_stage + 1;
    }
    copy_commit();
  };
  if constexpr (RESIDENT) {
#pragma unroll 1
    for (int chunk = 0; chunk < CHUNKS; chunk++)
      load_filter(ring + FILTER_AT + chunk * FILTER_BYTES, chunk);
  }
#pragma unroll 1
  for (int s = 0; s < AHEAD; s++)
    load();

  const Operands operands = operands_of(warp, lane);
  float sums[PRODUCTS_M][PRODUCTS_N * 4];

  int stage = 0, head = 0, turn = 0; // head: where the next row of products is kept
  u32 wait_turn = 0;
#pragma unroll 1
  for (int now = first_tile; now < run.tiles; now += turn == 0 ? step : 0) {
#pragma unroll 1
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
      if constexpr (BULK_IN) {
        copy_wait<0>(); // the filter
        barrier_wait(ring + BARRIERS_AT + chunk * 8, wait_turn);
      } else if constexpr (WHOLE)
        wait_for<CHUNKS - 1>(CHUNKS - 1 - chunk);
      else
        copy_wait<AHEAD - 1>();
      if constexpr (BULK) ts_store_wait_read<0>();
      operands_written();
      __syncthreads();
      if constexpr (!WHOLE && !WGMMA) load();
      const u32 window = ring + RING_AT + stage * STAGE_BYTES;
      const u32 filter = RESIDENT ? ring + FILTER_AT + chunk * FILTER_BYTES : window + WINDOW_BYTES;
      multiply_all(sums, operands, window, filter, chunk > 0);
      if constexpr (WGMMA) load();
      products_ended();
      stage = stage + 1 == RING ? 0 : stage + 1;
    }
    wait_turn ^= 1;
    if constexpr (WHOLE) __syncthreads(); // all have read what results replace

    // --- results ---
    const Tile tile = run.tile_of(now);
    Out *const image = run.out + (i64)tile.n * run.out_n;
    const int turn_h = TAPS_ON_N ? tile.h - (TAPS_H - 1) + turn * TILE_H : tile.h;
    const int od = tile.d * STRIDE_D - run.pad_d, oh = turn_h * STRIDE_H - run.pad_h;
    const int ow = (tile.w * STRIDE_W - run.pad_w) * COLS; // elements from the beginning of a row of results
    const int row_end = run.out_size_w * COLS;
    const int column_n = first_column(warp) + lane % 4 * 2;
    Staged *const staged = (Staged *)(memory + STAGED_AT + SKEW);
    if constexpr (TAPS_ON_N) {
#pragma unroll
      for (int i = 0; i < PRODUCTS_M; i++)
#pragma unroll
        for (int j = 0; j < PRODUCTS_N; j++)
#pragma unroll
          for (int half = 0; half < 2; half++) {
            const int m = first_row(warp, i) + half * 8 + lane / 4, plane = m / (TILE_H * WINDOW_W);
            const int at = ((head + m / WINDOW_W % TILE_H) % KEPT * WINDOW_D + plane) * WINDOW_W + m % WINDOW_W;
            if (m < ROWS)
              *(Pack<float, 2> *)(staged + at * STAGED_PITCH + column_n +
                                  j * 8) = {{sums[i][j * 4 + half * 2], sums[i][j * 4 + half * 2 + 1]}};
          }
      __syncthreads();
      constexpr int HIGH = TILE_H * STRIDE_H;
      // A warp takes a row of results. A lane keeps its columns, in positions that are SPAN units apart, so that what
      // depends on them is computed once; the sums of several positions are under way at once.
      constexpr int UNIT = ROW_COLUMNS % OUT_VECTOR ? ROW_COLUMNS * OUT_VECTOR : ROW_COLUMNS;
      constexpr int LANES = UNIT / OUT_VECTOR, PARTS = (LANES + 31) / 32, SPAN = PARTS > 1 ? 1 : 32 / LANES;
      constexpr int HOP = SPAN * UNIT, HOPS = (ROW + HOP - 1) / HOP, POSITIONS = HOP / ROW_COLUMNS;
      constexpr int FITS = 32 / (TAPS_D * TAPS_H * ADDED_W * OUT_VECTOR), MOST = FITS < 1 ? 1 : FITS > 8 ? 8 : FITS;
      constexpr int GROUPS = (HOPS + MOST - 1) / MOST, AT_ONCE = (HOPS + GROUPS - 1) / GROUPS;
#pragma unroll 1
      for (int part = 0; part < PARTS; part++) {
        const int place = part * 32 + lane, unit = PARTS > 1 ? 0 : place / LANES;
        const int in_unit = (PARTS > 1 ? place : place % LANES) * OUT_VECTOR, first = unit * UNIT + in_unit;
        const bool busy = PARTS > 1 ? place < LANES : unit < SPAN;
#pragma unroll 1
        for (int row = warp; row < TILE_D * STRIDE_D * HIGH; row += THREADS / 32) {
          const int rd = row / HIGH, rh = row % HIGH, d = od + rd, h = oh + rh;
          const int position_h = turn_h + rh / STRIDE_H;
          if ((u32)d >= (u32)run.out_size_d || (u32)h >= (u32)run.out_size_h) continue;
          if (position_h < tile.h || position_h >= tile.h + run.strip_h) continue;
          const int ad = rd % STRIDE_D, ah = rh % STRIDE_H;
          const Staged *lines[TAPS_H]; // where the rows that meet each tap are kept
#pragma unroll
          for (int th = 0; th < TAPS_H; th++)
            lines[th] =
                staged + (ad * FILTER_H + ah) * COLUMNS_W * COLS +
                ((head + rh / STRIDE_H + th + TILE_H) % KEPT * WINDOW_D + rd / STRIDE_D) * WINDOW_W * STAGED_PITCH;
          const i64 row_at = (i64)d * run.out_d + (i64)h * run.out_h;
          // The lane's result `v`, `hop` hops from its first position on; any of the row where it has none.
          const auto sum_of = [&](int hop, int v, bool there) {
            const int column = (in_unit + v) % ROW_COLUMNS, aw = column / COLS;
            const int position = unit * (UNIT / ROW_COLUMNS) + (in_unit + v) / ROW_COLUMNS;
            const int at = there ? position * STAGED_PITCH + column + hop * (POSITIONS * STAGED_PITCH) : 0;
            float sum = 0.0f;
#pragma unroll
            for (int td = 0; td < TAPS_D; td++)
#pragma unroll
              for (int th = 0; th < TAPS_H; th++)
#pragma unroll
                for (int tw = 0; tw < ADDED_W; tw++) {
                  const int kd = (TAPS_D - 1 - td) * STRIDE_D, kh = (TAPS_H - 1 - th) * STRIDE_H;
                  const int kw = (ADDED_W - 1 - tw) * STRIDE_W;
                  const bool exists = (FILTER_D % STRIDE_D == 0 || ad + kd < FILTER_D) &&
                                      (FILTER_H % STRIDE_H == 0 || ah + kh < FILTER_H) &&
                                      (COLUMNS_W % STRIDE_W == 0 || aw + kw < COLUMNS_W);
                  if (exists)
                    sum += widened(lines[th][at + (td * WINDOW_W + tw) * STAGED_PITCH +
                                             ((kd * FILTER_H + kh) * COLUMNS_W + kw) * COLS]);
                }
            return sum;
          };
#pragma unroll 1
          for (int hop = 0; hop < HOPS; hop += AT_ONCE) {
            float found[AT_ONCE][OUT_VECTOR];
            bool there[AT_ONCE], no_number = false;
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
              const int e = first + (hop + i) * HOP;
              there[i] = busy && e < ROW && (u32)(ow + e) < (u32)row_end;
#pragma unroll
              for (int v = 0; v < OUT_VECTOR; v++) {
                found[i][v] = sum_of(hop + i, v, there[i]);
                no_number |= there[i] && found[i][v] != found[i][v];
              }
            }
            if (no_number) {
#pragma unroll 1
              for (int i = 0; i < AT_ONCE * OUT_VECTOR; i++) {
                const int v = i % OUT_VECTOR, e = first + (hop + i / OUT_VECTOR) * HOP, c = (e + v) % COLS;
                if (!busy || e >= ROW || (u32)(ow + e) >= (u32)row_end) continue;
                float sum = sum_of(hop + i / OUT_VECTOR, v, true);
                if (sum != sum) sum = run.exact(tile.n, d, h, (ow + e + v) / COLS, c);
                const i64 at = row_at + run.place_in_row(ow + e) + v;
                narrow(image[at], run.finished(sum, (i64)tile.n * run.out_n + at, c));
              }
              continue;
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
              if (!there[i]) continue;
              const i64 at = row_at + run.place_in_row(ow + first + (hop + i) * HOP);
              Pack<Out, OUT_VECTOR> results;
#pragma unroll
              for (int v = 0; v < OUT_VECTOR; v++)
                narrow(results.v[v], run.finished(found[i][v], (i64)tile.n * run.out_n + at + v, (in_unit + v) % COLS));
              *(Pack<Out, OUT_VECTOR> *)(image + at) = results;
            }
          }
        }
      }
    } else {
      // A sum of results that is no number, or too large, tells that one of them may be none.
      bool no_number = false;
#pragma unroll
      for (int i = 0; i < PRODUCTS_M; i++) {
        float totals[4] = {};
#pragma unroll
        for (int j = 0; j < PRODUCTS_N; j++)
#pragma unroll
          for (int half = 0; half < 2; half++) {
            const int m = first_row(warp, i) + half * 8 + lane / 4, n = column_n + j * 8;
            float two[2];
#pragma unroll
            for (int v = 0; v < 2; v++) {
              two[v] = sums[i][j * 4 + half * 2 + v];
              totals[half * 2 + v] += two[v];
              // With a residual the epilogue comes where it is read.
              if constexpr (!RESIDUAL) two[v] = run.finished(two[v], 0, (n + v) % COLS);
            }
            *(Pack<Staged, 2> *)(staged + m * STAGED_PITCH + n) = narrowed(Staged(), two[0], two[1]);
          }
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const float total = totals[half * 2] + totals[half * 2 + 1];
          no_number |= (!WGMMA || first_row(warp, i) + half * 8 + lane / 4 < ROWS) && !(total - total == 0.0f);
        }
      }
      if constexpr (BULK) ts_async_fence();
      const bool repair = __syncthreads_or(no_number);
      // Where a tile's rows of results are staged as they lie, bulk copies store them but for their ends.
      if (BULK && !repair) {
#pragma unroll 1
        for (int row = warp; row < TILE_D * TILE_H; row += THREADS / 32) {
          constexpr int UNIT = 16 / (int)sizeof(Out);
          const int d = od + row / TILE_H * STRIDE_D + block_n / STRIDE_H;
          const int h = oh + row % TILE_H * STRIDE_H + block_n % STRIDE_H;
          if ((u32)d >= (u32)run.out_size_d || (u32)h >= (u32)run.out_size_h) continue;
          const int begin = larger(-ow, 0), end = smaller(row_end - ow, ROW);
          int from = (ow + begin + UNIT - 1) / UNIT * UNIT - ow, to = (ow + end) / UNIT * UNIT - ow;
          if (to <= from) from = to = end;
          Out *const line_to = image + ((i64)d * run.out_d + (i64)h * run.out_h + ow);
          const Out *const line = (const Out *)(staged + row_of_line(row / TILE_H, row % TILE_H) * STAGED_PITCH);
          const int x = lane < 16 ? begin + lane : to + lane - 16;
          if (x < (lane < 16 ? from : end)) line_to[x] = line[x];
          if (lane == 0 && from < to) ts_store_run(line_to + from, shared_address(line + from), (to - from) * (int)sizeof(Out));
        }
        ts_store_commit();
      }
      // A warp takes a row of results; a lane keeps its columns, as above, where that leaves few lanes idle.
      static_assert(TAPS_ON_N || ROW_COLUMNS % OUT_VECTOR == 0, "what is stored at once is of one position");
      constexpr int WIDE = TAPS_ON_N ? 1 : ROW_COLUMNS / OUT_VECTOR, SPAN = WIDE > 32 ? 0 : 32 / WIDE;
      constexpr bool KEEPS = SPAN * WIDE >= 24;
      constexpr int HOPS = KEEPS ? (TILE_W + SPAN - 1) / SPAN : (TILE_W * WIDE + 31) / 32;
      constexpr int MOST = OUT_VECTOR * sizeof(Out) < 16 ? 8 : 4, GROUPS = (HOPS + MOST - 1) / MOST;
      constexpr int AT_ONCE = (HOPS + GROUPS - 1) / GROUPS;
      const int rows = BULK && !repair ? 0 : PHASE_ROWS * TILE_D * TILE_H;
#pragma unroll 1
      for (int row = warp; row < rows; row += THREADS / 32) {
        const int line = row % (TILE_D * TILE_H), phase = row / (TILE_D * TILE_H);
        const int ad = (block_n * PHASE_ROWS + phase) / STRIDE_H, ah = (block_n * PHASE_ROWS + phase) % STRIDE_H;
        const int d = od + line / TILE_H * STRIDE_D + ad, h = oh + line % TILE_H * STRIDE_H + ah;
        if ((u32)d >= (u32)run.out_size_d || (u32)h >= (u32)run.out_size_h) continue;
        const i64 row_at = (i64)d * run.out_d + (i64)h * run.out_h;
        const Staged *const line_at =
            staged + row_of_line(line / TILE_H, line % TILE_H) * STAGED_PITCH + phase * ROW_COLUMNS;
        typedef Pack<Out, OUT_VECTOR> Vector;
#pragma unroll 1
        for (int hop = 0; hop < HOPS; hop += AT_ONCE) {
          Vector found[AT_ONCE];
          bool there[AT_ONCE];
          int position[AT_ONCE], in_row[AT_ONCE];
#pragma unroll
          for (int i = 0; i < AT_ONCE; i++) {
            const int x = (hop + i) * 32 + lane;
            position[i] = KEEPS ? lane / WIDE + (hop + i) * SPAN : x / WIDE;
            in_row[i] = (KEEPS ? lane : x) % WIDE * OUT_VECTOR;
            const int e = ow + position[i] * ROW_COLUMNS + in_row[i];
            there[i] = (!KEEPS || SPAN * WIDE == 32 || lane < SPAN * WIDE) && position[i] < TILE_W && (u32)e < (u32)row_end;
            if constexpr (!RESIDUAL && !BULK)
              found[i] = *(const Vector *)(line_at + (there[i] ? position[i] * STAGED_PITCH + in_row[i] : 0));
          }
          if (RESIDUAL || BULK || repair) {
#pragma unroll 1
            for (int i = 0; i < AT_ONCE * OUT_VECTOR; i++) {
              const int x = (hop + i / OUT_VECTOR) * 32 + lane, v = i % OUT_VECTOR;
              const int at_position = KEEPS ? lane / WIDE + (hop + i / OUT_VECTOR) * SPAN : x / WIDE;
              const int column = (KEEPS ? lane : x) % WIDE * OUT_VECTOR, e = ow + at_position * ROW_COLUMNS + column;
              if ((KEEPS && lane >= SPAN * WIDE) || at_position >= TILE_W || (u32)e >= (u32)row_end) continue;
              const i64 at = row_at + run.place_in_row(e) + v;
              const int c = (column + v) % COLS;
              float value = widened(line_at[at_position * STAGED_PITCH + column + v]);
              const bool wrong = value != value;
              if (wrong) value = run.exact(tile.n, d, h, (e + v) / COLS, c);
              if (RESIDUAL || wrong) value = run.finished(value, (i64)tile.n * run.out_n + at, c);
              narrow(image[at], value);
            }
            continue;
          }
#pragma unroll
          for (int i = 0; i < AT_ONCE; i++) {
            if (!there[i]) continue;
            const int e = ow + position[i] * ROW_COLUMNS + in_row[i];
            *(Vector *)(image + row_at + run.place_in_row(e)) = found[i];
          }
        }
      }
    }
    if constexpr (WHOLE) {
      if (now + step < run.tiles) {
        if constexpr (BULK) ts_store_wait_read<0>();
        __syncthreads();
#pragma unroll 1
        for (int s = 0; s < AHEAD; s++)
          load();
      }
    }
    head = (head + TILE_H) % KEPT;
    turn = turn + 1 == most_turns ? 0 : turn + 1;
  }
  copy_wait<0>();
  if constexpr (BULK) ts_store_wait();
}
