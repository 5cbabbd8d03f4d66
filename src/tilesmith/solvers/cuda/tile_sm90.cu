// One tile of a matrix product: operands by bulk tensor copies into a ring of stages, products by wgmma.
// A warpgroup copies; WARPGROUPS others multiply, on one tile together or (PINGPONG) on a tile each, in turns.
namespace @SYM@_scope {
enum { GEMM, CONV, WRW };              // what the operands are: matrices; pixels and a filter; dy and pixels
enum { MAPPED, ROWS, DIRECT, REDUCED }; // how results leave: tensor map; rows of 16 bytes; registers; over a cluster
@CONSTANTS@
@PRODUCT@
constexpr int WG_ROWS = 64 * MI, BLOCK_M = PINGPONG ? WG_ROWS : WG_ROWS * WARPGROUPS;
constexpr int SPAN = BLOCK_K * 2, SLAB = 64 * SPAN; // bytes of a K-major row, of 64 rows or columns of an operand
constexpr int B_COLS = B_BY_COLUMNS ? (BLOCK_N + SLAB_COLS - 1) / SLAB_COLS * SLAB_COLS : BLOCK_N;
constexpr int B_SLAB = SLAB_COLS * SPAN; // bytes of SLAB_COLS contiguous columns of B
constexpr int A_BYTES = BLOCK_M * SPAN, B_BYTES = B_COLS * SPAN, STAGE = A_BYTES + B_BYTES;
constexpr int CHUNKS = (BLOCK_N + 63) / 64, TAIL = BLOCK_N % 64, BUFFER = 2048;
constexpr int STAGING = STORE == MAPPED || STORE == ROWS ? WARPGROUPS * 4 * BUFFERS * BUFFER : 0;
constexpr int PITCH = (BLOCK_N + 31) / 32 * 32 + 8; // floats of a row of partial sums: 8 rows hit different banks
constexpr int RING = (STAGES * STAGE + 1023) / 1024 * 1024; // stores through a tensor map swizzle by 1024 bytes
constexpr bool BIAS_OF_ROW = TRANSPOSED;
static_assert(!PINGPONG || (WARPGROUPS == 2 && STORE != REDUCED), "pingpong is for two");
static_assert(SLAB_COLS == 64 || (KIND == WRW && STORE != MAPPED), "narrow slabs are stored from registers");
static_assert(STORE != REDUCED || BLOCK_M * PITCH * 4 <= STAGES * STAGE, "partial sums lie in the ring");

struct Run {
@FIELDS@};

struct Work {
  int m, n, layer, slice, first, last;
};

// Tile `t` of the launch: columns of `group` tiles are walked first, so that neighbours share operands in L2.
TS_DEVICE Work work_at(const Run &run, int t, int rank) {
  Work w;
  const int tiles = run.tiles_m * run.tiles_n;
  if (MIXED) { // long and short sums side by side; shifted, so that no block gets one layer alone
    const int of = t / run.layers;
    w.layer = (t - of * run.layers + of) % run.layers, w.slice = of / tiles, t = of - w.slice * tiles;
  } else {
    w.slice = 0, w.layer = 0;
    if (LAYERED || SLICED) {
      const int rest = t / tiles;
      t -= rest * tiles;
      w.slice = rest / run.layers, w.layer = rest - w.slice * run.layers;
      if (KIND == CONV) w.layer = (int)layer_order[w.layer];
    }
  }
  const int width = run.group * run.tiles_n, group = t / width, inside = t - group * width;
  const int left = run.tiles_m - group * run.group, high = left < run.group ? left : run.group;
  w.n = inside / high, w.m = group * run.group + inside - w.n * high;
  int steps = run.steps;
  if (KIND == CONV) {
    const int taps = phase_first[w.layer + 1] - phase_first[w.layer];
    steps = taps ? taps * run.blocks : 1;
  }
  w.first = 0, w.last = steps;
  if (SLICED || SPLIT > 1) {
    const int part = w.slice * SPLIT + rank, parts = run.slices * SPLIT, each = steps / parts, more = steps - each * parts;
    w.first = part * each + (part < more ? part : more), w.last = w.first + each + (part < more);
  }
  return w;
}

struct Pixel {
  int w, h, d, n;
};
TS_DEVICE Pixel pixel_at(const Run &run, int i) {
  Pixel p;
  int rest = i / run.base_w;
  p.w = i - rest * run.base_w;
  p.d = 0;
  int next = rest / run.base_h;
  p.h = rest - next * run.base_h;
  p.n = next;
  if (RANK == 5) {
    p.n = next / run.base_d;
    p.d = next - p.n * run.base_d;
  }
  return p;
}
TS_DEVICE void advance(const Run &run, Pixel &p, const Pixel &by) {
  p.w += by.w, p.h += by.h, p.d += by.d, p.n += by.n;
  if (p.w >= run.base_w) p.w -= run.base_w, p.h++;
  if (p.h >= run.base_h) {
    p.h -= run.base_h;
    if (RANK == 5) p.d++;
    else p.n++;
  }
  if (RANK == 5 && p.d >= run.base_d) p.d -= run.base_d, p.n++;
}
TS_DEVICE void load_pixels(const Run &run, ts_u32 to, const ts_map *map, ts_u32 full, int channel, const Pixel &p,
                           ts_u32 tap) {
  const int w = p.w * run.step_w + run.corner_w, h = p.h * run.step_h + run.corner_h;
  if (RANK == 5) ts_load_pixels5(to, map, full, channel, w, h, p.d * run.step_d + run.corner_d, p.n, tap);
  else ts_load_pixels4(to, map, full, channel, w, h, p.n, tap);
}

// --- where results lie, in elements ---
// -1: no such row.
TS_DEVICE ts_i64 row_at(const Run &run, const Work &w, int row) {
  if (row >= run.rows) return -1;
  if (KIND != CONV || OUT_LINEAR) return w.layer * run.out_layer + row * run.out_row;
  const Pixel p = pixel_at(run, row);
  const int pw = w.layer % run.phases_w, rest = w.layer / run.phases_w, ph = rest % run.phases_h;
  const int x = p.w * run.phases_w + pw, y = p.h * run.phases_h + ph, z = p.d * run.phases_d + rest / run.phases_h;
  if (x >= run.out_size_w || y >= run.out_size_h || z >= run.out_size_d) return -1;
  return p.n * run.out_n + z * run.out_d + y * run.out_h + x * run.out_w;
}
TS_DEVICE ts_i64 column_at(const Run &run, int column) {
  if (KIND != WRW) return column < run.cols ? column * run.out_col : -1;
  const int slab = column / SLAB_COLS, tap = slab / run.blocks;
  const int c = (slab - tap * run.blocks) * SLAB_COLS + column % SLAB_COLS;
  return tap < TAPS && c < run.channels ? tap * run.out_tap + c : -1;
}

TS_DEVICE float activate(float v) {
@ACTIVATION@}

// Two neighbours of a row: element `at`, and the next one when `both`.
TS_DEVICE void finish(const Run &run, float &a, float &b, int row, int column, ts_i64 at, bool both) {
  if (SCALED) a *= run.alpha, b *= run.alpha;
  if (BETA) {
    a += run.beta * ts_float(run.out[at]);
    if (both) b += run.beta * ts_float(run.out[at + run.out_col]);
  }
  if (BIAS) {
    a += ts_float(run.bias[BIAS_OF_ROW ? row : column]);
    if (both) b += ts_float(run.bias[BIAS_OF_ROW ? row : column + 1]);
  }
  if (RESIDUAL) {
    float p = 0.0f, q = 0.0f;
    if (EVEN) {
      ts_load_pair(run.residual + at, p, q);
    } else {
      p = ts_float(run.residual[at]);
      if (both) q = ts_float(run.residual[at + run.out_col]);
    }
    a += p, b += q;
  }
  a = activate(a), b = activate(b);
}
TS_DEVICE void store_two(const Run &run, float a, float b, ts_i64 at, bool both) {
  if (EVEN) {
    ts_store_pair(run.out + at, a, b);
  } else {
    ts_narrow(run.out + at, a);
    if (both) ts_narrow(run.out + at + run.out_col, b);
  }
}

// A zero beyond the edge of dy met an Inf or NaN of the filter: only products that exist count.
TS_DEVICE void repair(const Run &run, const Work &w, int row, int column, ts_i64 at) {
  const Pixel p = pixel_at(run, row);
  float sum = 0.0f, none = 0.0f;
  for (int t = phase_first[w.layer]; t < phase_first[w.layer + 1]; t++) {
    const ts_u32 tap = tap_offset[t];
    const int x = p.w + run.corner_w + (int)(tap & 255), y = p.h + run.corner_h + (int)(tap >> 8 & 255);
    const int z = p.d + run.corner_d + (int)(tap >> 16 & 255);
    if (x < 0 || y < 0 || z < 0 || x >= run.in_size_w || y >= run.in_size_h || z >= run.in_size_d) continue;
    const Element *from = run.pixels + p.n * run.in_n + z * run.in_d + y * run.in_h + x * run.in_w;
    const Element *by = run.filter + tap_filter[t] * run.filter_tap + column;
    for (int k = 0; k < run.channels; k++) sum += ts_float(from[k]) * ts_float(by[k * run.filter_row]);
  }
  finish(run, sum, none, row, column, at, false);
  ts_narrow(run.out + at, sum);
}

// Two neighbours of the row that begins at element `base`.
TS_DEVICE void finish_and_store(const Run &run, const Work &w, float a, float b, int row, int column, ts_i64 base) {
  const ts_i64 off = column_at(run, column);
  if (off < 0) return;
  const bool both = EVEN || column_at(run, column + 1) >= 0;
  finish(run, a, b, row, column, base + off, both);
  store_two(run, a, b, base + off, both);
  if (REPAIR && a != a) repair(run, w, row, column, base + off);
  if (REPAIR && both && b != b) repair(run, w, row, column + 1, base + off + 1);
}

TS_DEVICE void release(ts_u32 empty, int thread) {
  if (thread == 0) ts_arrive(empty);
}

extern "C" __global__ void __launch_bounds__((WARPGROUPS + 1) * 128, PER_SM) @SYM@(@PARAMETERS@) {
  extern __shared__ __align__(1024) unsigned char ts_shared[];
  const Run run = {@VALUES@};
  const ts_u32 ring = ts_shared_address(ts_shared), staging = ring + RING, barriers = staging + STAGING;
  const auto full = [=](ts_u32 stage) { return barriers + 8 * stage; };
  const auto empty = [=](ts_u32 stage) { return barriers + 8 * (STAGES + stage); };
  const int wg = __shfl_sync(~0u, threadIdx.x >> 7, 0), thread = threadIdx.x & 127, lane = threadIdx.x & 31;
  const int warp = __shfl_sync(~0u, thread >> 5, 0), rank = SPLIT > 1 ? (int)ts_cluster_rank() : 0;
  if (threadIdx.x == WARPGROUPS * 128) {
    ts_map_prefetch(&map_a);
    ts_map_prefetch(&map_b);
    if (STORE == MAPPED) ts_map_prefetch(&map_c);
  }
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) ts_barrier_init(full(i), 1), ts_barrier_init(empty(i), PINGPONG ? 1 : WARPGROUPS);
    ts_barrier_init_done();
  }
  __syncthreads();
  const int total = run.tiles_m * run.tiles_n * run.layers * run.slices;
  const int begin = blockIdx.x / SPLIT, stride = gridDim.x / SPLIT;

  if (wg == WARPGROUPS) {
    ts_registers_shrink<COPY_REGISTERS>();
    if (threadIdx.x == WARPGROUPS * 128) {
      ts_u32 stage = 0, phase = 0;
      for (int t = begin; t < total; t += stride) {
        const Work w = work_at(run, t, rank);
        const int row = w.m * BLOCK_M, column = w.n * BLOCK_N;
        Pixel p = {0, 0, 0, 0}, by = {0, 0, 0, 0};
        int tap = 0, block = 0, tap0 = 0, taps = 0;
        if (KIND == CONV) {
          p = pixel_at(run, row);
          tap0 = phase_first[w.layer], taps = phase_first[w.layer + 1] - tap0;
          if (taps && TAPS_INNER) block = w.first / taps, tap = w.first - block * taps;
          else tap = w.first / run.blocks, block = w.first - tap * run.blocks;
        }
        ts_u32 slab_tap[B_COLS / SLAB_COLS + 1];
        int slab_channel[B_COLS / SLAB_COLS + 1];
        if (KIND == WRW) {
          p = pixel_at(run, w.first * BLOCK_K), by = pixel_at(run, BLOCK_K);
#pragma unroll
          for (int q = 0; q < B_COLS / SLAB_COLS; q++) {
            const int slab = w.n * (BLOCK_N / SLAB_COLS) + q, of = slab / run.blocks;
            // Slabs beyond the filter are zeros, as channels beyond the last are.
            slab_tap[q] = of < TAPS ? tap_offset[of] : 0;
            slab_channel[q] = of < TAPS ? (slab - of * run.blocks) * SLAB_COLS : run.blocks * SLAB_COLS;
          }
        }
        for (int k = w.first; k < w.last; k++) {
          ts_wait(empty(stage), phase ^ 1);
          ts_expect(full(stage), STAGE);
          const ts_u32 a = ring + stage * STAGE, b = a + A_BYTES, done = full(stage);
          if (KIND == GEMM) {
            const int at = k * BLOCK_K, la = w.layer * run.a_layer, lb = w.layer * run.b_layer;
            if (A_BY_COLUMNS) {
#pragma unroll
              for (int q = 0; q < BLOCK_M / 64; q++) ts_load3(a + q * SLAB, &map_a, done, row + q * 64, at, la);
            } else {
              ts_load3(a, &map_a, done, at, row, la);
            }
            if (B_BY_COLUMNS) {
#pragma unroll
              for (int q = 0; q < B_COLS / 64; q++) ts_load3(b + q * SLAB, &map_b, done, column + q * 64, at, lb);
            } else {
              ts_load3(b, &map_b, done, at, column, lb);
            }
          } else if (KIND == CONV) {
            // A phase that no tap reaches still needs zeros: channels beyond the last are zeros.
            const int channel = taps ? block * BLOCK_K : run.blocks * BLOCK_K;
            const ts_u32 offset = taps ? tap_offset[tap0 + tap] : 0;
            const int of = taps ? tap_filter[tap0 + tap] : 0;
            load_pixels(run, a, &map_a, done, channel, p, offset);
            if (B_BY_COLUMNS) {
#pragma unroll
              for (int q = 0; q < B_COLS / 64; q++) ts_load3(b + q * SLAB, &map_b, done, column + q * 64, of, channel);
            } else {
              ts_load3(b, &map_b, done, channel, of, column);
            }
            if (TAPS_INNER) {
              if (++tap == taps) tap = 0, block++;
            } else {
              if (++block == run.blocks) block = 0, tap++;
            }
          } else {
#pragma unroll
            for (int q = 0; q < BLOCK_M / 64; q++)
              ts_load3(a + q * SLAB, &map_a, done, row + q * 64, k * BLOCK_K, 0);
#pragma unroll
            for (int q = 0; q < B_COLS / SLAB_COLS; q++)
              load_pixels(run, b + q * B_SLAB, &map_b, done, slab_channel[q], p, slab_tap[q]);
            advance(run, p, by);
          }
          if (++stage == STAGES) stage = 0, phase ^= 1;
        }
      }
    }
    if (STORE == REDUCED) {
      __syncwarp();
      ts_cluster_sync();
      ts_cluster_sync();
    }
  } else {
    ts_registers_grow<PRODUCT_REGISTERS>();
    constexpr ts_u64 A_LAYOUT = A_BY_COLUMNS ? ts_descriptor(SLAB, 1024, 128) : ts_descriptor(16, 8 * SPAN, SPAN);
    constexpr ts_u64 B_LAYOUT = B_BY_COLUMNS ? ts_descriptor(B_SLAB, 16 * SLAB_COLS, 2 * SLAB_COLS) : ts_descriptor(16, 8 * SPAN, SPAN);
    constexpr ts_u64 A_NEXT = A_BY_COLUMNS ? 128 : 2, B_NEXT = B_BY_COLUMNS ? 2 * SLAB_COLS : 2; // the next 16 of k
    ts_u32 stage = 0, phase = 0, buffer = 0;
    int turn = 0;
    if (PINGPONG && wg == 1) ts_named_arrive(8, 256);
    for (int t = begin; t < total; t += stride, turn++) {
      const Work w = work_at(run, t, rank);
      if (PINGPONG && (turn & 1) != wg) {
        const ts_u32 next = stage + (ts_u32)(w.last - w.first);
        phase ^= next / STAGES & 1;
        stage = next % STAGES;
        continue;
      }
      float sums[MI][BLOCK_N / 2];
      // NOTE: mbarriers know two phases only: without an order, a warpgroup that skips a whole turn of the ring
      // meets a stale phase.
      if (PINGPONG) ts_named_sync(8 + wg, 256);
      ts_u32 before = 0;
      for (int k = w.first; k < w.last; k++) {
        ts_wait(full(stage), phase);
        const ts_u32 a = ring + stage * STAGE + (PINGPONG ? 0 : wg * MI * SLAB), b = ring + stage * STAGE + A_BYTES;
        ts_product_fence();
#pragma unroll
        for (int i = 0; i < BLOCK_K / 16; i++) {
          const ts_u64 bd = ts_at(B_LAYOUT, b) + i * B_NEXT;
#pragma unroll
          for (int m = 0; m < MI; m++)
            product(sums[m], ts_at(A_LAYOUT, a + m * SLAB) + i * A_NEXT, bd, k != w.first || i != 0);
        }
        ts_product_commit();
        if (k > w.first) {
          ts_product_wait<1>();
          release(empty(before), thread);
        }
        before = stage;
        if (++stage == STAGES) stage = 0, phase ^= 1;
      }
      if (PINGPONG) ts_named_arrive(8 + (wg ^ 1), 256);
      if (SLICED) ts_launch_next(); // the sum of the slices waits for this kernel's end by itself
      ts_product_wait<0>();
      release(empty(before), thread);

      const int row0 = w.m * BLOCK_M + (PINGPONG ? 0 : wg * WG_ROWS), column0 = w.n * BLOCK_N;
      const int in_row = lane >> 2, in_column = (lane & 3) * 2;
      if (STORE == REDUCED) {
        ts_named_sync(1, WARPGROUPS * 128); // the ring is free
#pragma unroll
        for (int m = 0; m < MI; m++)
#pragma unroll
          for (int j = 0; j < BLOCK_N / 8; j++) {
            const int r = (wg * MI + m) * 64 + warp * 16 + in_row;
            const ts_u32 to = ring + (r * PITCH + j * 8 + in_column) * 4;
            ts_shared_store8(to, sums[m][4 * j], sums[m][4 * j + 1]);
            ts_shared_store8(to + 8 * PITCH * 4, sums[m][4 * j + 2], sums[m][4 * j + 3]);
          }
        ts_cluster_sync();
        // Each block of the cluster adds up its share of the tile, several quads of a thread at once: loads from a peer
        // take long.
        constexpr int QUADS = BLOCK_M * BLOCK_N / 4, THREADS = WARPGROUPS * 128, BATCH = SPLIT > 4 ? 2 : 4;
        const int last = QUADS * (rank + 1) / SPLIT;
        for (int q0 = QUADS * rank / SPLIT + threadIdx.x; q0 < last; q0 += BATCH * THREADS) {
          float4 parts[BATCH][SPLIT];
#pragma unroll
          for (int i = 0; i < BATCH; i++) {
            const int q = q0 + i * THREADS < last ? q0 + i * THREADS : q0;
            const int r = TRANSPOSED ? q % BLOCK_M : q / (BLOCK_N / 4);
            const int c = 4 * (TRANSPOSED ? q / BLOCK_M : q % (BLOCK_N / 4));
#pragma unroll
            for (int peer = 0; peer < SPLIT; peer++)
              parts[i][peer] = ts_peer_load(ts_peer_address(ring + (r * PITCH + c) * 4, peer));
          }
#pragma unroll
          for (int i = 0; i < BATCH; i++) {
            const int q = q0 + i * THREADS;
            if (q >= last) break;
            float4 v = parts[i][0];
#pragma unroll
            for (int peer = 1; peer < SPLIT; peer++) {
              const float4 u = parts[i][peer];
              v.x += u.x, v.y += u.y, v.z += u.z, v.w += u.w;
            }
            const int r = TRANSPOSED ? q % BLOCK_M : q / (BLOCK_N / 4);
            const int c = 4 * (TRANSPOSED ? q / BLOCK_M : q % (BLOCK_N / 4));
            const int row = w.m * BLOCK_M + r, column = column0 + c;
            const ts_i64 at = row_at(run, w, row);
            if (at < 0) continue;
            finish_and_store(run, w, v.x, v.y, row, column, at + w.slice * run.out_slice);
            finish_and_store(run, w, v.z, v.w, row, column + 2, at + w.slice * run.out_slice);
          }
        }
        ts_cluster_sync();
      } else {
        float probe = 0.0f;
#pragma unroll
        for (int m = 0; m < MI; m++) {
          const int row = row0 + m * 64 + warp * 16;
          ts_i64 low = 0, high = 0, mine = 0;
          if (STORE == DIRECT || RESIDUAL || BETA)
            low = row_at(run, w, row + in_row), high = row_at(run, w, row + in_row + 8);
          if (STORE == ROWS) mine = row_at(run, w, row + (lane & 15));
#pragma unroll
          for (int chunk = 0; chunk < CHUNKS; chunk++) {
            constexpr int ALL = BLOCK_N / 8;
            const int from = chunk * 8, to = from + 8 < ALL ? from + 8 : ALL;
#pragma unroll
            for (int j = from; j < to; j++) {
              const int column = column0 + j * 8 + in_column;
              float *v = sums[m] + 4 * j;
              if (STORE == DIRECT || RESIDUAL || BETA) {
                const ts_i64 off = column_at(run, column), slice = w.slice * run.out_slice;
                const bool both = EVEN || column_at(run, column + 1) >= 0;
                if (off >= 0 && low >= 0) {
                  finish(run, v[0], v[1], row + in_row, column, low + slice + off, both);
                  if (STORE == DIRECT) store_two(run, v[0], v[1], low + slice + off, both);
                }
                if (off >= 0 && high >= 0) {
                  finish(run, v[2], v[3], row + in_row + 8, column, high + slice + off, both);
                  if (STORE == DIRECT) store_two(run, v[2], v[3], high + slice + off, both);
                }
              } else if (BIAS) {
                float p = 0.0f, q = 0.0f;
                if (column + 1 < run.cols) ts_load_pair(run.bias + column, p, q);
                else if (column < run.cols) p = ts_float(run.bias[column]);
                v[0] = activate(v[0] + p), v[1] = activate(v[1] + q);
                v[2] = activate(v[2] + p), v[3] = activate(v[3] + q);
              } else {
                float scale = SCALED ? run.alpha : 1.0f;
                for (int i = 0; i < 4; i++) v[i] = activate(SCALED ? v[i] * scale : v[i]);
              }
              if (REPAIR)
                for (int i = 0; i < 4; i++) probe = fmaf(v[i], 0.0f, probe);
            }
            if (STORE == MAPPED || STORE == ROWS) {
              const ts_u32 at = staging + ((wg * 4 + warp) * BUFFERS + buffer % BUFFERS) * BUFFER;
              buffer++;
              if (STORE == MAPPED && lane == 0) ts_store_wait_read<BUFFERS - 1>();
              __syncwarp();
              const int quad = lane >> 3, r = lane & 7;
#pragma unroll
              for (int j = from; j < to; j += 2) {
                const float *v = sums[m] + 4 * j;
                const ts_u32 to16 = at + (r + (quad & 1) * 8) * 128 + (((j - from + (quad >> 1)) ^ r) << 4);
                const ts_u32 v0 = ts_pack(Out(), v[0], v[1]), v1 = ts_pack(Out(), v[2], v[3]);
                if (j + 1 < to) ts_put4(to16, v0, v1, ts_pack(Out(), v[4], v[5]), ts_pack(Out(), v[6], v[7]));
                else ts_put2(to16, v0, v1);
              }
              if (STORE == MAPPED) {
                ts_async_fence();
                __syncwarp();
                if (lane == 0) {
                  const ts_map *map = chunk == CHUNKS - 1 && TAIL ? &map_tail : &map_c;
                  if (KIND == WRW) {
                    const int slab = w.n * (BLOCK_N / 64) + chunk, tap = slab / run.blocks;
                    ts_store3(map, at, (slab - tap * run.blocks) * 64, tap, row);
                  } else {
                    ts_store3(map, at, column0 + chunk * 64, row, w.layer);
                  }
                  ts_store_commit();
                }
              } else {
                __syncwarp();
#pragma unroll
                for (int i = 0; i < 4; i++) {
                  const ts_i64 line = __shfl_sync(~0u, mine, i * 4 + (lane >> 3));
                  const int piece = lane & 7, lr = i * 4 + (lane >> 3), column = column0 + chunk * 64 + piece * 8;
                  const uint4 v = ts_shared_load16(at + lr * 128 + ((piece ^ (lr & 7)) << 4));
                  if (line >= 0 && piece < to - from && column < run.cols) *(uint4 *)(run.out + line + column) = v;
                }
                __syncwarp();
              }
            }
          }
        }
        if (REPAIR && __any_sync(~0u, probe != probe)) {
          if (STORE == MAPPED && lane == 0) ts_store_wait();
          __syncwarp();
          for (int m = 0; m < MI * 16; m++) {
            const int row = row0 + m / 16 * 64 + warp * 16 + m % 16;
            const ts_i64 at = row_at(run, w, row);
            if (at < 0) continue;
            for (int column = column0 + lane; column < column0 + BLOCK_N; column += 32) {
              if (column >= run.cols) continue;
              const float v = ts_fresh(run.out + at + column);
              if (v != v) repair(run, w, row, column, at + column);
            }
          }
          __syncwarp();
        }
      }
    }
    if (STORE == MAPPED) ts_store_wait();
  }
}
} // namespace @SYM@_scope
