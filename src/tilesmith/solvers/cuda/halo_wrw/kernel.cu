// Backward weights with steps of 1: a window of x with its halo is copied once, and every tap of the filter multiplies it
// with the same rows of dy through a shifted descriptor. Output channels are the rows of a product, its columns are
// input channels of TAPS_EACH taps, and it sums over pixels. The pixels of dy lie as those of the window do: between the end
// of a row and the next, dy has zeros.
constexpr int WARPGROUPS = K_GROUPS * LINE_GROUPS, SPAN = SLAB_COLS * 2, DY_SPAN = K_COLS * 2;
constexpr int X = (X_ROWS * SPAN + 1023) / 1024 * 1024, DY = (DY_ROWS * DY_SPAN + 1023) / 1024 * 1024;
constexpr int STAGE = X + K_GROUPS * DY, WINDOW_ROWS = WINDOW_W * WINDOW_H;
constexpr int DY_LOADED = WHOLE ? WINDOW_W * TILE_H : TILE_W * TILE_H;
static_assert(X_ROWS >= WINDOW_ROWS && DY_ROWS >= DY_LEAD + (TILE_H - 1) * WINDOW_W + TILE_W, "copies stay inside");
constexpr int BARRIERS = 256;
// Groups are layers: tensor maps have an axis of groups beside that of a group's channels, but for three spatial axes.
constexpr bool BESIDE = GROUPED && RANK == 4;
static_assert(THREADS == (WARPGROUPS + 1) * 128 && STAGES * STAGE + BARRIERS == SHARED_BYTES, "as counted");
static_assert(16 * STAGES <= BARRIERS, "barriers fit");

// The window's pixel that the tile's first one meets at the first tap of a line, in the filter's first window.
TS_DEVICE constexpr int row_of(int line) {
  return (ALONG_H ? line % LINE_PIECES * TAPS_EACH : line / LINE_PIECES * (64 / K_COLS)) * DILATION_H;
}
TS_DEVICE int start_of(int line) {
  if (line >= LINES) line = LINES - 1;
  return row_of(line) * WINDOW_W + (ALONG_H ? 0 : line % LINE_PIECES * TAPS_EACH * DILATION_W);
}

// Zeros into rows of a slab of all stages; by the multiplying threads.
TS_DEVICE void clear(unsigned char *slab, int rows, int span) {
  const int chunks = rows * span / 16;
#pragma unroll 1
  for (int i = threadIdx.x; i < chunks; i += WARPGROUPS * 128)
#pragma unroll
    for (int stage = 0; stage < STAGES; stage++) *(uint4 *)(slab + stage * STAGE + i * 16) = make_uint4(0, 0, 0, 0);
}
// What no copy reaches: dy must be zero there, and x finite.
TS_DEVICE void clear_gaps(unsigned char *shared) {
  if (X_ROWS > WINDOW_ROWS) clear(shared + WINDOW_ROWS * SPAN, X_ROWS - WINDOW_ROWS, SPAN);
#pragma unroll
  for (int k = 0; k < K_GROUPS; k++) {
    unsigned char *dy = shared + X + k * DY;
    constexpr int END = DY_LEAD + (WHOLE ? TILE_H * WINDOW_W : (TILE_H - 1) * WINDOW_W + TILE_W);
    if (DY_LEAD) clear(dy, DY_LEAD, DY_SPAN);
    if (DY_ROWS > END) clear(dy + END * DY_SPAN, DY_ROWS - END, DY_SPAN);
    if (!WHOLE && WINDOW_W > TILE_W)
#pragma unroll 1
      for (int h = 0; h < TILE_H - 1; h++)
        clear(dy + (DY_LEAD + h * WINDOW_W + TILE_W) * DY_SPAN, WINDOW_W - TILE_W, DY_SPAN);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) @SYM@(TS_PARAMETERS) {
  extern __shared__ __align__(1024) unsigned char ts_shared[];
  const Run run = TS_RUN;
  const ts_u32 ring = ts_shared_address(ts_shared), barriers = ring + STAGES * STAGE;
  const auto full = [=](ts_u32 i) { return barriers + 8 * i; };
  const auto empty = [=](ts_u32 i) { return barriers + 8 * (STAGES + i); };
  const int wg = __shfl_sync(~0u, threadIdx.x >> 7, 0), thread = threadIdx.x & 127;
  const Unit u = unit_at(run, blockIdx.x, blockIdx.y);
  const int slice = blockIdx.z, more = run.tiles_more;
  const int count = run.tiles_each + (slice < more), first = slice * run.tiles_each + (slice < more ? slice : more);

  if (wg == WARPGROUPS) {
    // The copying thread makes the barriers itself and waits for nobody: the first copies are under way before the other
    // warps are.
    if (thread == 0) {
      ts_map_prefetch(&map_dy);
      ts_map_prefetch(&map_x);
      for (int i = 0; i < STAGES; i++) ts_barrier_init(full(i), 1), ts_barrier_init(empty(i), WARPGROUPS);
      ts_barrier_init_done();
    }
    __syncwarp();
    ts_named_arrive(15, THREADS);
    ts_registers_shrink<COPY_REGISTERS>();
    if (thread == 0) {
      ts_wait_previous();
      ts_u32 stage = 0, phase = 0;
      const int dw = run.corner_w, dh = run.corner_h + row_of(u.lines), dd = run.corner_d + u.t * run.dilation_d;
      int rest = ts_quotient(first, run.by_tiles_w), next = ts_quotient(rest, run.by_tiles_h);
      int w = (first - rest * run.tiles_w) * TILE_W, h = (rest - next * run.tiles_h) * TILE_H;
      int n = ts_quotient(next, run.by_base_d), d = next - n * run.base_d;
      for (int t = 0; t < count; t++) {
        ts_wait(empty(stage), phase ^ 1);
        ts_expect(full(stage), WINDOW_ROWS * SPAN + K_GROUPS * DY_LOADED * DY_SPAN);
        const ts_u32 to = ring + stage * STAGE, done = full(stage);
        if (BESIDE) ts_load5(to, &map_x, done, u.c * SLAB_COLS, u.g, w + dw, h + dh, n);
        else if (RANK == 5) ts_load5(to, &map_x, done, u.g * run.channels + u.c * SLAB_COLS, w + dw, h + dh, d + dd, n);
        else ts_load4(to, &map_x, done, u.c * SLAB_COLS, w + dw, h + dh, n);
#pragma unroll 1
        for (int k = 0; k < K_GROUPS; k++)
#pragma unroll 1
          for (int i = 0; i < (WHOLE ? 1 : TILE_H); i++) {
            const ts_u32 at = to + X + k * DY + (DY_LEAD + i * WINDOW_W) * DY_SPAN;
            if (BESIDE) ts_load5(at, &map_dy, done, (u.k * K_GROUPS + k) * K_COLS, u.g, w, h + i, n);
            else if (RANK == 5) ts_load5(at, &map_dy, done, u.g * run.rows + (u.k * K_GROUPS + k) * K_COLS, w, h + i, d, n);
            else ts_load4(at, &map_dy, done, (u.k * K_GROUPS + k) * K_COLS, w, h + i, n);
          }
        if (++stage == STAGES) stage = 0, phase ^= 1;
        if ((w += TILE_W) >= run.base_w) w = 0, h += TILE_H;
        if (h >= run.base_h) h = 0, d++;
        if (d >= run.base_d) d = 0, n++;
      }
    }
  } else {
    clear_gaps(ts_shared);
    ts_async_fence();
    ts_named_sync(15, THREADS);
    ts_registers_grow<PRODUCT_REGISTERS>();
    // Half as many output channels: the second half of a product's rows are those of the row of taps above.
    constexpr ts_u64 A_LAYOUT = ts_descriptor(K_COLS == 64 ? 16 : ROW_STEP * DY_SPAN, 8 * DY_SPAN, DY_SPAN);
    constexpr ts_u64 B_LAYOUT = ts_descriptor(GROUP_STEP * SPAN, 8 * SPAN, SPAN);
    constexpr ts_u64 A_NEXT = DY_SPAN, B_NEXT = SPAN; // the next 16 pixels, in units of 16 bytes
    float sums[LINES_EACH][COLUMNS / 2];
    ts_sums_begin(sums);
    ts_u32 stage = 0, phase = 0, before = 0, line[LINES_EACH];
    ts_wait_previous();
#pragma unroll
    for (int i = 0; i < LINES_EACH; i++) line[i] = (start_of(u.lines + wg / K_GROUPS * LINES_EACH + i) - row_of(u.lines) * WINDOW_W) * SPAN;
    for (int t = 0; t < count; t++) {
      ts_wait(full(stage), phase);
      const ts_u32 x = ring + stage * STAGE;
      // NOTE: descriptors may start at any row, and taps may be any number of rows apart: the swizzle follows the address.
      const ts_u64 a = ts_at(A_LAYOUT, x + X + wg % K_GROUPS * DY + (K_COLS == 64 ? 0 : DY_LEAD - ROW_STEP) * DY_SPAN);
      ts_product_fence();
#pragma unroll
      for (int i = 0; i < LINES_EACH; i++) product(sums[i], a, ts_at(B_LAYOUT, x + line[i]), t != 0);
      ts_product_commit();
      if (t != 0) {
        ts_product_wait<1>();
        if (thread == 0) ts_arrive(empty(before));
      }
#pragma unroll 4
      for (int k = 1; k < STEPS; k++) {
        ts_product_fence();
#pragma unroll
        for (int i = 0; i < LINES_EACH; i++)
          product(sums[i], a + k * A_NEXT, ts_at(B_LAYOUT, x + line[i]) + k * B_NEXT, 1);
        ts_product_commit();
      }
      before = stage;
      if (++stage == STAGES) stage = 0, phase ^= 1;
    }
    if (PARTIAL) ts_launch_next(); // the sum of the slices waits for this kernel's end by itself
    ts_product_wait<0>();
    ts_sums_ready(sums);
    float *const to = run.partial + ((ts_i64)((blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x) * BLOCK_QUADS + wg * LINES_EACH * QUADS * 128 + thread) * 4;
    bool nan = false;
#pragma unroll
    for (int i = 0; i < LINES_EACH; i++)
#pragma unroll
      for (int j = 0; j < QUADS; j++) {
        const float *q = sums[i] + 4 * j;
        const float4 v = make_float4(q[0], q[1], q[2], q[3]);
        if (PARTIAL) *(float4 *)(to + (i * QUADS + j) * 512) = v;
        else nan |= finish(run, u, wg, i * QUADS + j, thread, v);
      }
    if (!PARTIAL && nan)
#pragma unroll 1
      for (int i = 0; i < LINES_EACH * QUADS; i++) mend(run, u, wg, i, thread);
  }
}
