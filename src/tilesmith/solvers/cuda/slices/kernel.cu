// A tile is a row of units along H, each of 64 rows: LINES lines of positions. A block goes through the slices of the
// input along D. A product's columns are the taps along D, phases and channels: what a slice adds to TAPS_D positions,
// of which the first one is finished then, and leaves.
constexpr int FILTER_AT = STAGES * STAGE_BYTES, STAGED_AT = FILTER_AT + FILTER_BYTES;
constexpr int ROW = TILE_W * ROW_COLUMNS; // of results, of a tile
static_assert(FILTER_BYTES == CHUNKS * TAPS_W * STEPS * COLUMNS * 32, "as packed");
static_assert(STAGED_AT + TILE_H * STRIDE_D * STRIDE_H * STAGED_PITCH * (int)sizeof(Staged) == SHARED_BYTES,
              "rows of results are staged behind the filter, as they lie");
static_assert(STAGED_PITCH >= ROW && STAGED_PITCH % OUT_VECTOR == 0, "what is stored at once is read at once");

// The image, and the first position of a tile.
struct Tile {
  int n, d, h, w;
};

struct Problem : Run {
  TS_MMA_METHOD Tile tile_of(int i) const {
    const int line = divided(i, tiles_w_m, tiles_w_s), plane = divided(line, tiles_h_m, tiles_h_s);
    const int n = divided(plane, tiles_d_m, tiles_d_s), w = i - line * tiles_w, h = line - plane * tiles_h;
    return {n, first_d + (plane - n * tiles_d) * strip, first_h + h * TILE_H, first_w + w * TILE_W};
  }
  TS_MMA_METHOD int end_of(const Tile &tile) const { return smaller(tile.d + strip, end_d); }
  // The slices that a tile reads. Forward, zeros beyond the image count where weights are no numbers.
  TS_MMA_METHOD int first_slice(const Tile &tile) const {
    return TURNED ? tile.d - (TAPS_D - 1) : larger(tile.d - (TAPS_D - 1), 0);
  }
  TS_MMA_METHOD int end_slice(const Tile &tile) const { return TURNED ? end_of(tile) : smaller(end_of(tile), size_d); }

  // A result is no number: the same by the definition, which has no zero weights. Backward has no zeros outside of dy.
  TS_MMA_METHOD float exact(int n, int d, int h, int w, int c) const {
    const Element *const image = source + (i64)n * in_n, *const column = filter + (i64)c * filter_column;
    float sum = 0.0f;
#pragma unroll 1
    for (int tap = 0; tap < FILTER_D * FILTER_H * FILTER_W; tap++) {
      const int kd = tap / (FILTER_H * FILTER_W), kh = tap / FILTER_W % FILTER_H, kw = tap % FILTER_W;
      const int d_met = d + pad_d - LEAD_D - kd, h_met = h + pad_h - LEAD_H - kh, w_met = w + pad_w - LEAD_W - kw;
      if (d_met % STRIDE_D || h_met % STRIDE_H || w_met % STRIDE_W) continue;
      const int i = d_met / STRIDE_D, j = h_met / STRIDE_H, k = w_met / STRIDE_W;
      const bool inside = (u32)i < (u32)size_d && (u32)j < (u32)size_h && (u32)k < (u32)size_w;
      if (!inside && !TURNED) continue;
      const int from = TURNED ? FILTER_D * FILTER_H * FILTER_W - 1 - tap : tap; // turned along each axis
      const Element *const by = column + (i64)(from / (FILTER_H * FILTER_W)) * filter_d +
                                (i64)(from / FILTER_W % FILTER_H) * filter_h + (i64)(from % FILTER_W) * filter_w;
#pragma unroll 1
      for (int channel = 0; channel < CHANNELS; channel++) {
        const float x = inside ? widened(image[(i64)i * in_d + (i64)j * in_h + (i64)k * in_w + channel]) : 0.0f;
        sum = added_product(x, widened(by[(i64)channel * filter_channel]), sum);
      }
    }
    return sum;
  }
  TS_MMA_METHOD float finished(float v, i64 at, int c) const {
    if (BIAS) v += widened(bias[c]);
    if (RESIDUAL) v += widened(residual[at]);
    return activate(v);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) @SYM@(TS_PARAMETERS) {
  const Problem run = {TS_RUN};
  extern __shared__ __align__(128) unsigned char memory[];
  const u32 ring = shared_address(memory);
  const int warp = __shfl_sync(~0u, (int)threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  launch_next();
  wait_previous();

  // --- loads, by the last warpgroup ---
  constexpr int AT_ONCE = IN_VECTOR == 1 ? 8 : IN_VECTOR, PARTS = BLOCK_C / AT_ONCE;
  constexpr int COPIES = (PIXELS * PARTS + 127) / 128, HOP = 128 / PARTS, UNROLLED = COPIES <= MOST_PLACES ? COPIES : 1;
  const int first_pixel = threadIdx.x % 128 / PARTS, channel = threadIdx.x % PARTS * AT_ONCE;
  Tile next;
  int next_tile = (int)blockIdx.x - (int)gridDim.x, next_d = 0, next_end = 0, next_chunk = 0, next_stage = 0;
  int places[UNROLLED]; // of a thread's pixels in a slice; -1: outside of the image. Of many, each time anew
  auto place_of = [&](int i) {
    const int pixel = first_pixel + i * HOP;
    const int h = next.h - (TAPS_H - 1) + pixel / WINDOW_W, w = next.w - (TAPS_W - 1) + pixel % WINDOW_W;
    return (u32)h < (u32)run.size_h && (u32)w < (u32)run.size_w ? h * run.in_h + w * run.in_w : -1;
  };
  auto load_window = [&](u32 to) {
    const Element *const slice =
        run.source + ((i64)next.n * run.in_n + (i64)next_d * run.in_d + next_chunk * BLOCK_C + channel);
    int most = (u32)next_d < (u32)run.size_d ? AT_ONCE : 0;
    if (CHANNELS % BLOCK_C) most = smaller(most, larger(CHANNELS - next_chunk * BLOCK_C - channel, 0));
    const u32 first = to + (channel / 8 * PLANE + first_pixel) * 16 + channel % 8 * 2;
#pragma unroll UNROLLED
    for (int i = 0; i < COPIES; i++) {
      if (i == COPIES - 1 && first_pixel + i * HOP >= PIXELS) break;
      // An address outside of the image is made but not read.
      const int place = UNROLLED > 1 ? places[i] : place_of(i), valid = place < 0 ? 0 : most;
      const Element *const from = slice + place;
      const u32 at = first + i * (HOP * 16);
      if constexpr (IN_VECTOR == 1) {
        u32 two[4];
#pragma unroll
        for (int e = 0; e < 4; e++) {
          two[e] = e * 2 < valid ? load_bits<2>(from + e * 2, 2) : 0;
          two[e] |= e * 2 + 1 < valid ? load_bits<2>(from + e * 2 + 1, 2) << 16 : 0;
        }
        shared_store16(at, two[0], two[1], two[2], two[3]);
      } else {
        copy_async<AT_ONCE * 2>(at, from, valid * 2);
      }
    }
  };
  auto load = [&] {
    if (next_d == next_end) { // the next tile that reads any slice
      for (next_tile += gridDim.x; next_tile < run.tiles; next_tile += gridDim.x) {
        next = run.tile_of(next_tile);
        next_d = run.first_slice(next), next_end = run.end_slice(next);
        if (next_d < next_end) break;
      }
      if constexpr (UNROLLED > 1) {
#pragma unroll
        for (int i = 0; i < COPIES; i++)
          places[i] = place_of(i);
      }
    }
    if (next_tile < run.tiles) {
      load_window(ring + next_stage * STAGE_BYTES);
      next_chunk = next_chunk + 1 == CHUNKS ? 0 : next_chunk + 1;
      next_d += next_chunk == 0;
      next_stage = next_stage + 1 == STAGES ? 0 : next_stage + 1;
    }
    copy_commit();
  };
#pragma unroll 4
  for (int i = threadIdx.x; i < FILTER_BYTES / 16; i += THREADS)
    copy_async<16>(ring + FILTER_AT + i * 16, run.packed + i, 16);
  copy_commit();

  Tile held;
  int held_d = 0;
  bool holds = false; // results of position `held_d` of tile `held` are staged
  Staged *const staged = (Staged *)(memory + STAGED_AT);

  // --- results ---
  auto store = [&] {
    Out *const image = run.out + (i64)held.n * run.out_n;
    const int od = held_d * STRIDE_D - run.pad_d, oh = held.h * STRIDE_H - run.pad_h;
    const int ow = (held.w * STRIDE_W - run.pad_w) * COLS, row_end = run.out_size_w * COLS;
    // A warp takes a row of results.
#pragma unroll 1
    for (int row = warp - MULTIPLIERS / 32; row < TILE_H * STRIDE_D * STRIDE_H; row += 4) {
      const int phase = row % (STRIDE_D * STRIDE_H), line = row / (STRIDE_D * STRIDE_H);
      const int d = od + phase / STRIDE_H, h = oh + line * STRIDE_H + phase % STRIDE_H;
      if ((u32)d >= (u32)run.out_size_d || (u32)h >= (u32)run.out_size_h) continue;
      const i64 row_at = (i64)d * run.out_d + (i64)h * run.out_h;
      const Staged *const from = staged + row * STAGED_PITCH;
      auto place_in_row = [&](int e) { return DENSE_ROWS ? ow + e : (ow + e) / COLS * run.out_w + (ow + e) % COLS; };
      bool no_number = false;
#pragma unroll 2
      for (int e = lane * OUT_VECTOR; e < ROW; e += 32 * OUT_VECTOR) {
        if ((u32)(ow + e) >= (u32)row_end) continue;
        const Pack<Staged, OUT_VECTOR> sums = *(const Pack<Staged, OUT_VECTOR> *)(from + e);
        const i64 at = row_at + place_in_row(e);
        Pack<Out, OUT_VECTOR> results;
#pragma unroll
        for (int v = 0; v < OUT_VECTOR; v++) {
          const float sum = widened(sums.v[v]);
          no_number |= sum != sum;
          const i64 added = (i64)held.n * run.out_n + at + v;
          narrow(results.v[v], RESIDUAL ? run.finished(sum, added, (e + v) % COLS) : sum);
        }
        *(Pack<Out, OUT_VECTOR> *)(image + at) = results;
      }
      if (!no_number) continue;
#pragma unroll 1
      for (int i = 0; i < (ROW + 32 * OUT_VECTOR - 1) / (32 * OUT_VECTOR) * OUT_VECTOR; i++) {
        const int e = (i / OUT_VECTOR * 32 + lane) * OUT_VECTOR + i % OUT_VECTOR, c = e % COLS;
        if (e >= ROW || (u32)(ow + e) >= (u32)row_end) continue;
        const float sum = widened(from[e]);
        if (sum == sum) continue;
        const i64 at = row_at + place_in_row(e / OUT_VECTOR * OUT_VECTOR) + e % OUT_VECTOR;
        const float value = run.exact(held.n, d, h, (ow + e) / COLS, c);
        narrow(image[at], run.finished(value, (i64)held.n * run.out_n + at, c));
      }
    }
  };
  // Goes through the slices. `turn(seen, chunk)` comes for each of a slice's windows, or once where the input has no
  // such slice; `ended(seen, leaves, final)` behind a slice: a position is finished, the tile has no further slice.
  auto go = [&](auto turn, auto ended) {
#pragma unroll 1
    for (int now = blockIdx.x; now < run.tiles || holds; now += gridDim.x) { // once more to store the last results
      const bool any = now < run.tiles;
      const Tile tile = run.tile_of(now);
      const int first = run.first_slice(tile), end = run.end_slice(tile), begin = tile.d - (TAPS_D - 1);
      const int last = any ? run.end_of(tile) : begin + 1;
#pragma unroll 1
      for (int d = begin; d < last; d++) {
        const bool seen = any && d >= first && d < end;
#pragma unroll 1
        for (int chunk = 0; chunk < (seen ? CHUNKS : 1); chunk++) {
          turn(seen, chunk);
          holds = false;
        }
        ended(seen, any && d >= tile.d, d == last - 1);
        if (any && d >= tile.d) holds = true, held = tile, held_d = d;
      }
    }
  };
  // The last warpgroup moves windows and results, the others multiply.
  if (warp / 4 == WARPGROUPS) {
    int due = STAGES - 1; // loads that find room
    copy_wait<0>();       // of the filter
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    go(
        [&](bool seen, int) {
#pragma unroll 1
          for (; due > 0; due--)
            load();
          copy_wait<STAGES - 2>();
          all_meet();
          due = seen;
          if (holds) store();
        },
        [&](bool seen, bool, bool) {
          if (!seen || CHUNKS == 1) all_meet(); // what was staged has left
        });
  } else {
    const int group = warp / 4;
    const bool wider = group < WIDER;
    const int first_unit = group * (UNITS / WARPGROUPS) + smaller(group, WIDER);
    const u32 rows = ring + rows_of(warp, lane) + first_unit * LINES * WINDOW_W * 16;
    float sums[MOST][SUMS] = {};
    int stage = 0;
    copy_wait<0>();
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    go(
        [&](bool seen, int chunk) {
          all_meet();
          if (seen) {
            multiply_all(sums, rows + stage * STAGE_BYTES, ring + FILTER_AT + chunk * (FILTER_BYTES / CHUNKS), wider);
            stage = stage + 1 == STAGES ? 0 : stage + 1;
          }
        },
        [&](bool seen, bool leaves, bool final) {
          __syncwarp();
          asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
          if (!seen || CHUNKS == 1) all_meet();
          if (leaves) {
#pragma unroll
            for (int i = 0; i < EACH * 2; i++) {
              const int half = i % 2, own = i / 2, m = own * 4 + lane % 4, row = warp % 4 * 16 + half * 8 + lane / 4;
              if (m >= GROUP || row >= LINES * TILE_W) continue;
              const int line = first_unit * LINES + row / TILE_W, e = row % TILE_W * ROW_COLUMNS + m % ROW_COLUMNS;
              Staged *const to = staged + (line * STRIDE_D * STRIDE_H + m / ROW_COLUMNS) * STAGED_PITCH + e;
#pragma unroll
              for (int unit = 0; unit < MOST; unit++) {
                if (WIDER && unit == MOST - 1 && !wider) continue;
                const float sum = sums[unit][own / 2 * 4 + half * 2 + own % 2];
                // With a residual the epilogue comes where it is read.
                narrow(to[unit * LINES * STRIDE_D * STRIDE_H * STAGED_PITCH],
                       RESIDUAL ? sum : run.finished(sum, 0, m % COLS));
              }
            }
          }
          // What the second tap's columns have summed, the first one's go on with.
#pragma unroll
          for (int unit = 0; unit < MOST; unit++)
#pragma unroll
            for (int i = 0; i < TAPS_D * EACH * 2; i++) {
              const int half = i % 2, own = i / 2, after = own + EACH;
              sums[unit][own / 2 * 4 + half * 2 + own % 2] =
                  after < TAPS_D * EACH && !final ? sums[unit][after / 2 * 4 + half * 2 + after % 2] : 0.0f;
            }
        });
  }
  copy_wait<0>();
}
