// Products of groups of rows: each group of A's rows has a matrix B of its own. Where groups end is read on the device.
// wgmma sees the product transposed, so that its 64 rows are columns of B, and its columns, which come in steps of 8, are
// the few or many rows of a group. A block walks over tiles of all groups; a warpgroup copies, WARPGROUPS others multiply,
// on one tile together or (PINGPONG) on a tile each, in turns.
constexpr int WG_COLS = 64 * MI, SPAN = 128;
constexpr int SLAB = 64 * SPAN; // bytes of 64 columns of B, or of 64 rows of results
constexpr int B_BYTES = BLOCK_COLS * SPAN, A_BYTES = BLOCK_ROWS * SPAN, STAGE = A_BYTES + B_BYTES;
// Results pass through shared memory: CHUNK rows of 64 columns at once, in two buffers of each warpgroup.
constexpr int CHUNKS = BLOCK_ROWS / CHUNK, BUFFER = CHUNK * SPAN;
constexpr int STAGING = WARPGROUPS * 2 * BUFFER, RING = STAGES * STAGE, BARRIERS = 512;
static_assert(THREADS == (WARPGROUPS + 1) * 128 && RING + STAGING + BARRIERS == FIXED_BYTES, "as counted");
static_assert(BLOCK_COLS == (PINGPONG ? WG_COLS : WG_COLS * WARPGROUPS) && BLOCK_COLS <= 256, "as counted");
static_assert(16 * STAGES <= BARRIERS && BLOCK_ROWS % CHUNK == 0 && BUFFER % 1024 == 0, "barriers and chunks fit");
static_assert(!PINGPONG || WARPGROUPS == 2, "pingpong is for two");

// The first row and the first tile of each group, and behind the last one how many there are.
struct Groups {
  int *row, *tile;
};
struct Work {
  int row, rows, column, group;
};

// One warp adds up the tiles of the groups. An end below the one before it makes an empty group.
TS_DEVICE void count_tiles(const Run &run, const Groups &at, int lane) {
  int row = 0, tile = 0;
  for (int base = 0; base < run.groups; base += 32) {
    const int i = base + lane;
    int end = i < run.groups ? *((volatile const int *)run.ends + i) : 0;
    end = end < run.rows ? end : run.rows;
    end = end > row ? end : row;
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(~0u, end, step);
      if (lane >= step && other > end) end = other;
    }
    int first = __shfl_up_sync(~0u, end, 1);
    if (lane == 0) first = row;
    const int mine = (end - first + BLOCK_ROWS - 1) / BLOCK_ROWS * run.tiles_n;
    int sum = mine;
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(~0u, sum, step);
      if (lane >= step) sum += other;
    }
    if (i < run.groups) at.row[i] = first, at.tile[i] = tile + sum - mine;
    row = __shfl_sync(~0u, end, 31), tile += __shfl_sync(~0u, sum, 31);
  }
  if (lane == 0) at.row[run.groups] = row, at.tile[run.groups] = tile;
}

// Tile `t`: up to `band` tiles of a group's rows are walked first, so that neighbours share operands in L2.
TS_DEVICE Work work_at(const Run &run, const Groups &at, int t) {
  int low = 0, high = run.groups;
  while (high - low > 1) {
    const int middle = (low + high) >> 1;
    if (at.tile[middle] <= t) low = middle;
    else high = middle;
  }
  Work w;
  w.group = low;
  const int begin = at.row[low], end = at.row[low + 1], all = (end - begin + BLOCK_ROWS - 1) / BLOCK_ROWS;
  const int inside = t - at.tile[low], band = ts_quotient(inside, run.by_width), in_band = inside - band * run.width;
  const int left = all - band * run.band, tall = left < run.band ? left : run.band;
  const int n = in_band / tall, m = band * run.band + in_band - n * tall;
  w.row = begin + m * BLOCK_ROWS, w.column = n * BLOCK_COLS;
  w.rows = end - w.row < BLOCK_ROWS ? end - w.row : BLOCK_ROWS;
  return w;
}

// Stores 16 bytes of a row, or the elements of them that there are.
TS_DEVICE void store_piece(const Run &run, ts_i64 row, int column, uint4 v) {
  Out *to = run.out + row * run.out_row + column;
  if (WHOLE) {
    if (column < run.cols) *(uint4 *)to = v;
    return;
  }
  const ts_u32 words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 8; i++)
    if (column + i < run.cols) to[i].bits = (ts_u16)(words[i / 2] >> i % 2 * 16);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) @SYM@(TS_PARAMETERS) {
  extern __shared__ __align__(1024) unsigned char ts_shared[];
  const Run run = TS_RUN;
  const ts_u32 ring = ts_shared_address(ts_shared), staging = ring + RING, barriers = staging + STAGING;
  int *const behind = (int *)(ts_shared + FIXED_BYTES);
  const Groups table = {behind, behind + run.groups + 1};
  const auto full = [=](ts_u32 stage) { return barriers + 8 * stage; };
  const auto empty = [=](ts_u32 stage) { return barriers + 8 * (STAGES + stage); };
  const int wg = __shfl_sync(~0u, threadIdx.x >> 7, 0), thread = threadIdx.x & 127, lane = threadIdx.x & 31;
  const int warp = __shfl_sync(~0u, thread >> 5, 0);
  if (threadIdx.x == WARPGROUPS * 128) {
    ts_map_prefetch(&map_a), ts_map_prefetch(&map_b);
    constexpr int READERS = PINGPONG ? 1 : WARPGROUPS;
    for (int i = 0; i < STAGES; i++) ts_barrier_init(full(i), 1), ts_barrier_init(empty(i), READERS);
    ts_barrier_init_done();
  }
  ts_wait_previous();
  if (threadIdx.x < 32) count_tiles(run, table, lane);
  __syncthreads();
  const int total = table.tile[run.groups];

  if (wg < WARPGROUPS) {
    ts_registers_grow<PRODUCT_REGISTERS>();
    constexpr ts_u64 B_LAYOUT = B_BY_COLUMNS ? ts_descriptor(SLAB, 1024, SPAN) : ts_descriptor(16, 8 * SPAN, SPAN);
    constexpr ts_u64 A_LAYOUT = ts_descriptor(16, 8 * SPAN, SPAN);
    constexpr ts_u64 B_NEXT = B_BY_COLUMNS ? 128 : 2, A_NEXT = 2; // the next 16 of k
    ts_u32 stage = 0, phase = 0, buffer = 0;
    int turn = 0;
    if (PINGPONG && wg == 1) ts_named_arrive(8, 256);
    for (int t = blockIdx.x; t < total; t += gridDim.x, turn++) {
      if (PINGPONG && (turn & 1) != wg) {
        const ts_u32 next = stage + (ts_u32)run.steps;
        phase ^= next / STAGES & 1;
        stage = next % STAGES;
        continue;
      }
      const Work w = work_at(run, table, t);
      float sums[MI][BLOCK_ROWS / 2];
      ts_sums_begin(sums);
      // NOTE: mbarriers know two phases only: without an order, a warpgroup that skips a whole turn of the ring
      // meets a stale phase.
      if (PINGPONG) ts_named_sync(8 + wg, 256);
      ts_u32 before = 0;
      for (int k = 0; k < run.steps; k++) {
        ts_wait(full(stage), phase);
        const ts_u32 b = ring + stage * STAGE + (PINGPONG ? 0 : wg * MI * SLAB), a = ring + stage * STAGE + B_BYTES;
        ts_product_fence();
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
          for (int m = 0; m < MI; m++)
            product(sums[m], ts_at(B_LAYOUT, b + m * SLAB) + i * B_NEXT, ts_at(A_LAYOUT, a) + i * A_NEXT, k + i != 0);
        }
        ts_product_commit();
        if (k) {
          ts_product_wait<1>();
          if (thread == 0) ts_arrive(empty(before));
        }
        before = stage;
        if (++stage == STAGES) stage = 0, phase ^= 1;
      }
      if (PINGPONG) ts_named_arrive(8 + (wg ^ 1), 256);
      ts_product_wait<0>();
      ts_sums_ready(sums);
      if (thread == 0) ts_arrive(empty(before));

      const int of_lane = (lane & 7) + (lane >> 4) * 8, half = warp * 2 + (lane >> 3 & 1);
#pragma unroll
      for (int m = 0; m < MI; m++) {
        const int column = w.column + (PINGPONG ? 0 : wg * WG_COLS) + m * 64;
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; chunk++) {
          const int rows = w.rows - chunk * CHUNK; // that are the group's
          const ts_u32 at = staging + (wg * 2 + buffer) * BUFFER;
          buffer ^= 1;
          if (thread == 0) ts_store_wait_read<1>();
          ts_named_sync(2 + wg, 128);
#pragma unroll
          for (int j = 0; j < CHUNK; j += 16) {
            const int row = j + of_lane;
            const ts_u32 to = at + row * SPAN + ((half ^ (row & 7)) << 4);
            ts_put_sums<Out, true>(to, sums[m] + (chunk * CHUNK + j) / 2, j + 8 < CHUNK);
          }
          ts_async_fence();
          ts_named_sync(2 + wg, 128);
          if (MAPPED && rows >= CHUNK) {
            if (thread == 0) ts_store3(&map_c, at, column, w.row + chunk * CHUNK, 0);
          } else {
            for (int i = thread; i < CHUNK * 8; i += 128) {
              const int row = i >> 3, piece = i & 7;
              if (row < rows)
                store_piece(run, w.row + chunk * CHUNK + row, column + piece * 8,
                            ts_shared_load16(at + row * SPAN + ((piece ^ (row & 7)) << 4)));
            }
          }
          if (thread == 0) ts_store_commit(); // of no store, too: each buffer has a group
        }
      }
    }
    // Rows behind the last group.
    const int last = table.row[run.groups], pieces = (run.cols + 7) / 8;
    for (int row = last + blockIdx.x; row < run.rows; row += gridDim.x)
      for (int piece = threadIdx.x; piece < pieces; piece += WARPGROUPS * 128)
        store_piece(run, row, piece * 8, make_uint4(0, 0, 0, 0));
    if (thread == 0) ts_store_wait();
  } else {
    ts_registers_shrink<COPY_REGISTERS>();
    if (threadIdx.x == WARPGROUPS * 128) {
      ts_u32 stage = 0, phase = 0;
      for (int t = blockIdx.x; t < total; t += gridDim.x) {
        const Work w = work_at(run, table, t);
        for (int k = 0; k < run.steps; k++) {
          ts_wait(empty(stage), phase ^ 1);
          const ts_u32 b = ring + stage * STAGE, a = b + B_BYTES, done = full(stage);
          ts_expect(done, STAGE);
          const auto load_b = [&](ts_u32 to, int x, int y) {
            if (B_ONCE) ts_load3_once(to, &map_b, done, x, y, w.group);
            else ts_load3(to, &map_b, done, x, y, w.group);
          };
          if (B_BY_COLUMNS) {
#pragma unroll
            for (int q = 0; q < BLOCK_COLS / 64; q++) load_b(b + q * SLAB, w.column + q * 64, k * 64);
          } else {
            load_b(b, k * 64, w.column);
          }
          ts_load3(a, &map_a, done, k * 64, w.row, 0);
          if (++stage == STAGES) stage = 0, phase ^= 1;
        }
      }
    }
  }
}
