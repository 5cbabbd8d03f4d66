// A window of pixels with its halo is copied once for each block of channels, and every tap of the filter reads it
// through a shifted descriptor. With a stride, each of its PHASES (the pixels of one residue) has a window of its own, and
// the taps that meet it. Result channels are the rows of a product, pixels its columns; columns at the end of a window's
// rows are computed and thrown away.
constexpr int SPAN = BLOCK_K * 2, SLAB = 64 * SPAN;
constexpr int WINDOW_ROWS = WINDOW_D * WINDOW_H * WINDOW_W;
constexpr int WINDOW = (WINDOW_ROWS * SPAN + 1023) / 1024 * 1024, FILTER = BLOCK_M * SPAN;
constexpr int FILTER_RING = (RESIDENT ? BLOCKS * TAPS : STAGES) * FILTER;
constexpr int STAGING = (TILE_H * TILE_W * 128 + 1023) / 1024 * 1024;
// A filter that stays arrives tap by tap: the first product waits for the first tap alone.
constexpr int TILES_OF_FILTER = BLOCKS * TAPS, MOST = 32;
constexpr int BARRIERS_OF_FILTER = !RESIDENT ? STAGES : TILES_OF_FILTER < MOST ? TILES_OF_FILTER : MOST;

constexpr int FILTERS = (FILTER_RING + 1023) / 1024 * 1024, NOWHERE = 512, BARRIERS = 512;
static_assert(BLOCK_M == (PINGPONG ? 64 : 64 * WARPGROUPS) && THREADS == (WARPGROUPS + 1) * 128, "as counted");
static_assert(WINDOWS * WINDOW + FILTERS + WARPGROUPS * STAGING + NOWHERE + BARRIERS + 1024 == SHARED_BYTES, "all fit");
// Nobody waits for room for a filter that stays.
constexpr int WAITS_OF_FILTER = RESIDENT ? 0 : BARRIERS_OF_FILTER;
constexpr bool STRIDED = STEP_W * STEP_H * STEP_D > 1;
static_assert(!LEAVES_OUT || (!RESIDENT && !STRIDED && RANK == 5), "a filter that stays is read whole");
static_assert(8 * (2 * WINDOWS + BARRIERS_OF_FILTER + WAITS_OF_FILTER + WARPGROUPS) <= BARRIERS, "barriers fit");

// Groups are layers: tensor maps have an axis of groups beside that of a group's channels, but for three spatial axes.
constexpr bool BESIDE = GROUPED && RANK == 4;

struct Work {
  int m, g, w, h, d, n;
};
// The group and its first channel of a tile among those of all channels.
TS_DEVICE void channels_at(const Run &run, int tile, Work &x) {
  x.g = GROUPED ? ts_quotient(tile, run.by_tiles_each) : 0;
  x.m = (GROUPED ? tile - x.g * run.tiles_each : tile) * BLOCK_M;
}
TS_DEVICE Work work_at(const Run &run, int t) {
  Work x;
  int rest = ts_quotient(t, run.by_tiles_m);
  channels_at(run, t - rest * run.tiles_m, x);
  int next = ts_quotient(rest, run.by_tiles_w);
  x.w = (rest - next * run.tiles_w) * TILE_W, rest = next;
  next = ts_quotient(rest, run.by_tiles_h);
  x.h = (rest - next * run.tiles_h) * TILE_H, rest = next;
  x.n = RANK == 5 ? ts_quotient(rest, run.by_out_size_d) : rest;
  x.d = rest - x.n * run.out_size_d;
  return x;
}

// Planes of the filter that a tile needs.
TS_DEVICE Planes planes_at(const Run &run, const Work &x) {
  const int d = x.d + run.corner_d;
  return planes_between(run, d, d);
}

// A tile of results (or of the residual) of 64 channels.
TS_DEVICE void load_tile(ts_u32 to, const ts_map *map, ts_u32 full, const Run &run, const Work &x, int channel) {
  if (BESIDE) ts_load5(to, map, full, channel, x.g, x.w, x.h, x.n);
  else if (RANK == 5) ts_load5(to, map, full, channel + x.g * run.rows, x.w, x.h, x.d, x.n);
  else ts_load4(to, map, full, channel, x.w, x.h, x.n);
}
TS_DEVICE void store_tile(const ts_map *map, ts_u32 from, const Run &run, const Work &x, int channel) {
  if (BESIDE) ts_store5(map, from, channel, x.g, x.w, x.h, x.n);
  else if (RANK == 5) ts_store5(map, from, channel + x.g * run.rows, x.w, x.h, x.d, x.n);
  else ts_store4(map, from, channel, x.w, x.h, x.n);
}

// A zero beyond the edge of dy met an Inf or NaN of the filter: only products that exist count.
TS_DEVICE void repair(Run run, const Work &x, int pixel, int channel) {
  const int w = x.w + pixel % TILE_W, h = x.h + pixel / TILE_W;
  if (w >= run.out_size_w || h >= run.out_size_h || channel >= run.rows) return;
  if (GROUPED) {
    const int first = x.g * run.rows;
    run.out += first, run.bias += first, run.residual += first;
    run.pixels += x.g * run.channels, run.filter += (ts_i64)x.g * run.channels * run.filter_row;
  }
  Out *at = run.out + x.n * run.out_n + x.d * run.out_d + h * run.out_h + w * run.out_w + channel;
  const float found = ts_fresh(at);
  if (found == found) return;
  float begin = BIAS ? ts_float(run.bias[channel]) : 0.0f;
  if (RESIDUAL) begin += ts_float(run.residual[at - run.out]);
  ts_narrow(at, activate(add_existing(run, begin, w, h, x.d, x.n, 0, TAPS, channel)));
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) @SYM@(TS_PARAMETERS) {
  extern __shared__ __align__(1024) unsigned char ts_shared[];
  const Run run = TS_RUN;
  const ts_u32 windows = ts_shared_address(ts_shared), filters = windows + WINDOWS * WINDOW;
  const ts_u32 staging = filters + FILTERS, nowhere = staging + WARPGROUPS * STAGING;
  const ts_u32 barriers = nowhere + NOWHERE;
  const auto window_full = [=](ts_u32 i) { return barriers + 8 * i; };
  const auto window_empty = [=](ts_u32 i) { return barriers + 8 * (WINDOWS + i); };
  const auto filter_full = [=](ts_u32 i) { return barriers + 8 * (2 * WINDOWS + i); };
  const auto filter_empty = [=](ts_u32 i) { return barriers + 8 * (2 * WINDOWS + BARRIERS_OF_FILTER + i); };
  const int wg = __shfl_sync(~0u, threadIdx.x >> 7, 0), thread = threadIdx.x & 127, lane = threadIdx.x & 31;
  const int warp = __shfl_sync(~0u, thread >> 5, 0);
  const auto arrived = [=](ts_u32 group) { return filter_empty(WAITS_OF_FILTER + group); }; // of the residual
  constexpr int READERS = PINGPONG ? 1 : WARPGROUPS;
  if (wg == WARPGROUPS) {
    // Each copying thread makes its barriers itself and waits for nobody: the first copies are under way before the
    // other warps are.
    if (thread == 0) {
      ts_map_prefetch(&map_pixels);
      for (int i = 0; i < WINDOWS; i++) ts_barrier_init(window_full(i), 1), ts_barrier_init(window_empty(i), READERS);
      ts_barrier_init_done();
    } else if (thread == 32) {
      ts_map_prefetch(&map_filter);
      for (int i = 0; i < BARRIERS_OF_FILTER; i++) {
        ts_barrier_init(filter_full(i), 1);
        if (!RESIDENT) ts_barrier_init(filter_empty(i), READERS);
      }
      ts_barrier_init_done();
    } else if (thread == 64) {
      ts_map_prefetch(&map_out);
      if (RESIDUAL) {
        ts_map_prefetch(&TS_RESIDUAL_MAP);
        for (int i = 0; i < WARPGROUPS; i++) ts_barrier_init(arrived(i), 1);
        ts_barrier_init_done();
      }
      ts_touch(window_row[0]); // for the other warpgroups
    } else if (thread == 96) { // what the copying threads read next
      touch(run);
    }
    __syncwarp();
    ts_named_arrive(15, THREADS);
    ts_registers_shrink<COPY_REGISTERS>();
    ts_wait_previous();
    if (thread == 0) {
      ts_u32 slot = 0, turned = 0;
      for (int t = blockIdx.x; t < run.tiles; t += gridDim.x) {
        const Work x = work_at(run, t);
        for (int item = 0; item < BLOCKS * PHASES; item++) {
          const int channel = item / PHASES * BLOCK_K, at = STRIDED ? phase_at[item % PHASES] : 0;
          const int w = x.w * STEP_W + run.corner_w + (at & 255), h = x.h * STEP_H + run.corner_h + (at >> 8 & 255);
          ts_wait(window_empty(slot), turned ^ 1);
          ts_expect(window_full(slot), WINDOW_ROWS * SPAN);
          const ts_u32 to = windows + slot * WINDOW;
          if (BESIDE) ts_load5(to, &map_pixels, window_full(slot), channel, x.g, w, h, x.n);
          else if (RANK == 5)
            ts_load5(to, &map_pixels, window_full(slot), x.g * run.channels + channel, w, h,
                     x.d * STEP_D + run.corner_d + (at >> 16), x.n);
          else ts_load4(to, &map_pixels, window_full(slot), channel, w, h, x.n);
          if (++slot == WINDOWS) slot = 0, turned ^= 1;
        }
      }
    } else if (thread == 32) {
      const auto load_filter = [&](ts_u32 to, ts_u32 full, const Work &x, int block, int tap) {
        const int of = tap_filter[tap];
        const auto load = [&](ts_u32 at, int column, int row) {
          if (GROUPED) ts_load4(at, &map_filter, full, column, of, row, x.g);
          else ts_load3(at, &map_filter, full, column, of, row);
        };
        if (A_BY_COLUMNS) {
#pragma unroll
          for (int q = 0; q < BLOCK_M / 64; q++) load(to + q * SLAB, x.m + q * 64, block * BLOCK_K);
        } else {
          load(to, block * BLOCK_K, x.m);
        }
      };
      Work x = {};
      if (RESIDENT) { // of the same channels for all tiles of the block
        if (GROUPED) channels_at(run, blockIdx.x % run.tiles_m, x);
        for (int i = 0; i < TILES_OF_FILTER; i++) {
          const ts_u32 full = filter_full(i < MOST ? i : MOST - 1);
          if (i < MOST) ts_expect(full, (i < MOST - 1 ? 1 : TILES_OF_FILTER - i) * FILTER);
          load_filter(filters + i * FILTER, full, x, i / TAPS, i % TAPS);
        }
      } else {
        ts_u32 stage = 0, phase = 0;
        for (int t = blockIdx.x; t < run.tiles; t += gridDim.x) {
          if (LEAVES_OUT) x = work_at(run, t);
          else channels_at(run, t - ts_quotient(t, run.by_tiles_m) * run.tiles_m, x);
          const Planes p = planes_at(run, x);
          for (int block = 0; block < BLOCKS; block++)
            for (int tap = p.first * PLANE; tap < p.last * PLANE; tap++) {
              ts_wait(filter_empty(stage), phase ^ 1);
              ts_expect(filter_full(stage), FILTER);
              load_filter(filters + stage * FILTER, filter_full(stage), x, block, tap);
              if (++stage == STAGES) stage = 0, phase ^= 1;
            }
        }
      }
    }
  } else {
    // Columns behind a window's last pixel are computed too: what they read must be numbers, or each result is probed.
    constexpr int GAP = WINDOW - WINDOW_ROWS * SPAN;
    if (REPAIR && GAP) {
      for (int i = threadIdx.x; i < WINDOWS * (GAP / 16); i += WARPGROUPS * 128)
        *(uint4 *)(ts_shared + i / (GAP / 16) * WINDOW + WINDOW_ROWS * SPAN + i % (GAP / 16) * 16) = make_uint4(0, 0, 0, 0);
      ts_async_fence();
    }
    ts_named_sync(15, THREADS);
    ts_registers_grow<PRODUCT_REGISTERS>();
    constexpr ts_u64 A_LAYOUT = A_BY_COLUMNS ? ts_descriptor(SLAB, 1024, 128) : ts_descriptor(16, 8 * SPAN, SPAN);
    constexpr ts_u64 B_LAYOUT = ts_descriptor(16, 8 * SPAN, SPAN), A_NEXT = A_BY_COLUMNS ? 128 : 2;
    ts_u32 slot = 0, window_phase = 0, stage = 0, filter_phase = 0, residual_phase = 0;
    int turn = 0;
    if (PINGPONG && wg == 1) ts_named_arrive(8, 256);
    ts_wait_previous();
    for (int t = blockIdx.x; t < run.tiles; t += gridDim.x, turn++) {
      if (PINGPONG && (turn & 1) != wg) {
        const Planes p = planes_at(run, LEAVES_OUT ? work_at(run, t) : Work());
        const ts_u32 next = slot + BLOCKS * PHASES, next_stage = stage + BLOCKS * PLANE * (p.last - p.first);
        window_phase ^= next / WINDOWS & 1, slot = next % WINDOWS;
        if (!RESIDENT) filter_phase ^= next_stage / STAGES & 1, stage = next_stage % STAGES;
        continue;
      }
      const Work x = work_at(run, t);
      const Planes p = planes_at(run, x);
      const int channel = x.m + (PINGPONG ? 0 : wg * 64);
      const ts_u32 buffer = staging + wg * STAGING;
      if (RESIDUAL && thread == 0) { // it arrives where the results leave from, while the products run
        ts_store_wait_read<0>();
        ts_expect(arrived(wg), TILE_H * TILE_W * 128);
        load_tile(buffer, &TS_RESIDUAL_MAP, arrived(wg), run, x, channel);
      }
      const int mine = channel + warp * 16 + (lane >> 2);
      const int place = GROUPED ? x.g * run.rows + mine : mine;
      const Out none = {}; // the bias is read before the products
      const Out of_low = BIAS && mine < run.rows ? run.bias[place] : none;
      const Out of_high = BIAS && mine + 8 < run.rows ? run.bias[place + 8] : none;
      float sums[BLOCK_N / 2];
      ts_sums_begin(sums);
      if (PINGPONG) ts_named_sync(8 + wg, 256);
      ts_u32 slot_before = 0, stage_before = 0;
      for (int part = 0; part < BLOCKS * PHASES; part++) {
        const int block = part / PHASES, phase = part % PHASES;
        const int begin = PHASES > 1 ? phase_first[phase] : 0, end = PHASES > 1 ? phase_first[phase + 1] : PLANE;
        ts_wait(window_full(slot), window_phase);
        const ts_u32 window = windows + slot * WINDOW;
        for (int plane = p.first; plane < p.last; plane++) {
#pragma unroll 3
          for (int of = begin; of < end; of++) {
            const int tap = plane * PLANE + of, item = block * TAPS + tap;
            const bool first = of == begin && plane == p.first; // of the window
            if (!RESIDENT) ts_wait(filter_full(stage), filter_phase);
            else if (turn < WARPGROUPS) ts_wait(filter_full(item < MOST ? item : MOST - 1), 0);
            const ts_u32 a = filters + (RESIDENT ? item : stage) * FILTER + (PINGPONG ? 0 : wg * SLAB);
            // NOTE: a descriptor may start at any row: the swizzle follows the address, and its base offset stays 0.
            const ts_u32 b = window + window_row[tap] * SPAN;
            ts_product_fence();
#pragma unroll
            for (int i = 0; i < PRODUCTS; i++)
              product(sums, ts_at(A_LAYOUT, a) + i * A_NEXT, ts_at(B_LAYOUT, b) + i * 2, part != 0 || !first || i != 0);
            ts_product_commit();
            if (part != 0 || !first) {
              ts_product_wait<1>();
              if (thread == 0) {
                if (!RESIDENT) ts_arrive(filter_empty(stage_before));
                if (first) ts_arrive(window_empty(slot_before));
              }
            }
            stage_before = stage;
            if (!RESIDENT && ++stage == STAGES) stage = 0, filter_phase ^= 1;
          }
        }
        slot_before = slot;
        if (++slot == WINDOWS) slot = 0, window_phase ^= 1;
      }
      if (PINGPONG) ts_named_arrive(8 + (wg ^ 1), 256);
      ts_product_wait<0>();
      ts_sums_ready(sums);
      if (thread == 0) {
        if (!RESIDENT) ts_arrive(filter_empty(stage_before));
        ts_arrive(window_empty(slot_before));
        if (!RESIDUAL) ts_store_wait_read<0>();
      }
      if (RESIDUAL) ts_wait(arrived(wg), residual_phase), residual_phase ^= 1;
      else ts_named_sync(1 + wg, 128);
      float low = ts_float(of_low), high = ts_float(of_high);
      if (LOOKS) low += left_out(run, p, mine, run.rows), high += left_out(run, p, mine + 8, run.rows);
      const int quad = lane >> 3, r = lane & 7;
      float probe[4] = {}; // several, so that their chains are short
#pragma unroll
      for (int j = 0; j < BLOCK_N / 8; j += 2) {
        float *v = sums + 4 * j;
        const int count = j + 1 < BLOCK_N / 8 ? 8 : 4;
#pragma unroll
        for (int i = 0; i < count; i++) {
          v[i] = BIAS || LOOKS ? v[i] + (i & 2 ? high : low) : v[i];
          if (!RESIDUAL) v[i] = activate(v[i]);
          if (REPAIR) probe[i & 3] = fmaf(v[i], 0.0f, probe[i & 3]);
        }
        const int position = 8 * (j + (quad >> 1)) + r, h = position / WINDOW_W, w = position - h * WINDOW_W;
        const int pixel = h * TILE_W + w;
        const ts_u32 to = w < TILE_W && h < TILE_H
                              ? buffer + pixel * 128 + (((2 * warp + (quad & 1)) ^ (pixel & 7)) << 4)
                              : nowhere + lane * 16;
        if (RESIDUAL) {
          ts_add_stored<Out, true>(to, v, count == 8);
#pragma unroll
          for (int i = 0; i < count; i++) v[i] = activate(v[i]);
        }
        ts_put_sums<Out, true>(to, v, count == 8);
      }
      ts_async_fence();
      ts_named_sync(1 + wg, 128);
      if (thread == 0) {
        store_tile(&map_out, buffer, run, x, channel);
        ts_store_commit();
      }
      const float sum = probe[0] + probe[1] + (probe[2] + probe[3]);
      if (REPAIR && ts_named_any(1 + wg, 128, sum != sum)) {
        if (thread == 0) ts_store_wait();
        ts_named_sync(1 + wg, 128);
        for (int i = thread; i < TILE_H * TILE_W * 64; i += 128) repair(run, x, i / 64, channel + i % 64);
      }
    }
    if (thread == 0) ts_store_wait();
  }
}
