// Backward weights with steps of 1: a window of x with its halo is copied once, and every tap of the filter multiplies it
// with the same rows of dy through a shifted descriptor. Output channels are the rows of a product, its columns are
// input channels of GROUP taps, and it sums over pixels. The pixels of dy lie as those of the window do: between the end
// of a row and the next, dy has zeros.
namespace @SYM@_scope {
@CONSTANTS@
@PRODUCT@
@PLACE@
constexpr int WARPGROUPS = K_GROUPS * LINE_GROUPS, SPAN = SLAB_COLS * 2, DY_SPAN = K_COLS * 2;
constexpr int X = (X_ROWS * SPAN + 1023) / 1024 * 1024, DY = (DY_ROWS * DY_SPAN + 1023) / 1024 * 1024;
constexpr int STAGE = X + K_GROUPS * DY, WINDOW_ROWS = WINDOW_W * WINDOW_H;
constexpr int DY_LOADED = WHOLE ? WINDOW_W * TILE_H : TILE_W * TILE_H;

// What no copy reaches: dy must be zero there, and x finite. By the multiplying threads.
TS_DEVICE void clear(unsigned char *shared) {
  constexpr int CHUNKS = DY_SPAN / 16, BEYOND = (X_ROWS - WINDOW_ROWS) * SPAN / 16;
  const uint4 zero = make_uint4(0, 0, 0, 0);
#pragma unroll 1
  for (int i = threadIdx.x; i < STAGES * DY_ROWS * CHUNKS; i += WARPGROUPS * 128) {
    const int row = i / CHUNKS % DY_ROWS, pixel = row - DY_LEAD, h = pixel / WINDOW_W;
    if (pixel >= 0 && h < TILE_H && (WHOLE || pixel - h * WINDOW_W < TILE_W)) continue;
#pragma unroll
    for (int k = 0; k < K_GROUPS; k++)
      *(uint4 *)(shared + i / CHUNKS / DY_ROWS * STAGE + X + k * DY + row * DY_SPAN + i % CHUNKS * 16) = zero;
  }
#pragma unroll 1
  for (int i = threadIdx.x; i < STAGES * BEYOND; i += WARPGROUPS * 128)
    *(uint4 *)(shared + i / BEYOND * STAGE + WINDOW_ROWS * SPAN + i % BEYOND * 16) = zero;
}

extern "C" __global__ void __launch_bounds__((WARPGROUPS + 1) * 128, 1) @SYM@(@PARAMETERS@) {
  extern __shared__ __align__(1024) unsigned char ts_shared[];
  const Run run = {@VALUES@};
  const ts_u32 ring = ts_shared_address(ts_shared), barriers = ring + STAGES * STAGE;
  const auto full = [=](ts_u32 i) { return barriers + 8 * i; };
  const auto empty = [=](ts_u32 i) { return barriers + 8 * (STAGES + i); };
  const int wg = __shfl_sync(~0u, threadIdx.x >> 7, 0), thread = threadIdx.x & 127;
  const int slice = blockIdx.x / run.units, unit = blockIdx.x - slice * run.units;
  const Unit u = unit_at(run, unit);
  const int each = run.tiles / run.slices, more = run.tiles - each * run.slices;
  const int first = slice * each + (slice < more ? slice : more), last = first + each + (slice < more);

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
    ts_named_arrive(15, (WARPGROUPS + 1) * 128);
    ts_registers_shrink<COPY_REGISTERS>();
    if (thread == 0) {
      ts_u32 stage = 0, phase = 0;
      const int dw = run.corner_w, dh = run.corner_h + (int)part_row[u.lines / (LINE_GROUPS * LINES_EACH)];
      const int dd = run.corner_d + u.t * run.dilation_d;
      for (int t = first; t < last; t++) {
        int rest = t / run.tiles_w, next = rest / run.tiles_h;
        const int w = (t - rest * run.tiles_w) * TILE_W, h = (rest - next * run.tiles_h) * TILE_H;
        const int n = next / run.base_d, d = next - n * run.base_d;
        ts_wait(empty(stage), phase ^ 1);
        ts_expect(full(stage), WINDOW_ROWS * SPAN + K_GROUPS * DY_LOADED * DY_SPAN);
        const ts_u32 to = ring + stage * STAGE, done = full(stage);
        if (RANK == 5) ts_load5(to, &map_x, done, u.c * SLAB_COLS, w + dw, h + dh, d + dd, n);
        else ts_load4(to, &map_x, done, u.c * SLAB_COLS, w + dw, h + dh, n);
#pragma unroll 1
        for (int k = 0; k < K_GROUPS; k++)
#pragma unroll 1
          for (int i = 0; i < (WHOLE ? 1 : TILE_H); i++) {
            const ts_u32 at = to + X + k * DY + (DY_LEAD + i * WINDOW_W) * DY_SPAN;
            if (RANK == 5) ts_load5(at, &map_dy, done, (u.k * K_GROUPS + k) * K_COLS, w, h + i, d, n);
            else ts_load4(at, &map_dy, done, (u.k * K_GROUPS + k) * K_COLS, w, h + i, n);
          }
        if (++stage == STAGES) stage = 0, phase ^= 1;
      }
    }
  } else {
    clear(ts_shared);
    ts_async_fence();
    ts_named_sync(15, (WARPGROUPS + 1) * 128);
    ts_registers_grow<PRODUCT_REGISTERS>();
    // Half as many output channels: the second half of a product's rows are those of the row of taps above.
    constexpr ts_u64 A_LAYOUT = ts_descriptor(K_COLS == 64 ? 16 : ROW_STEP * DY_SPAN, 8 * DY_SPAN, DY_SPAN);
    constexpr ts_u64 B_LAYOUT = ts_descriptor(GROUP_STEP * SPAN, 8 * SPAN, SPAN);
    constexpr ts_u64 A_NEXT = DY_SPAN, B_NEXT = SPAN; // the next 16 pixels, in units of 16 bytes
    float sums[LINES_EACH][COLUMNS / 2];
    ts_u32 stage = 0, phase = 0, before = 0, line[LINES_EACH];
#pragma unroll
    for (int i = 0; i < LINES_EACH; i++) line[i] = line_row[u.lines + wg / K_GROUPS * LINES_EACH + i] * SPAN;
    for (int t = first; t < last; t++) {
      ts_wait(full(stage), phase);
      const ts_u32 x = ring + stage * STAGE;
      // NOTE: descriptors may start at any row, and taps may be any number of rows apart: the swizzle follows the address.
      const ts_u64 a = ts_at(A_LAYOUT, x + X + wg % K_GROUPS * DY + (K_COLS == 64 ? 0 : DY_LEAD - ROW_STEP) * DY_SPAN);
      ts_product_fence();
#pragma unroll
      for (int i = 0; i < LINES_EACH; i++) product(sums[i], a, ts_at(B_LAYOUT, x + line[i]), t != first);
      ts_product_commit();
      if (t != first) {
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
    float *const to = run.partial + ((ts_i64)blockIdx.x * BLOCK_QUADS + wg * LINES_EACH * QUADS * 128 + thread) * 4;
#pragma unroll
    for (int i = 0; i < LINES_EACH; i++)
#pragma unroll
      for (int j = 0; j < QUADS; j++) {
        const float *q = sums[i] + 4 * j;
        const float4 v = make_float4(q[0], q[1], q[2], q[3]);
        if (PARTIAL) *(float4 *)(to + (i * QUADS + j) * 512) = v;
        else finish(run, u, wg, i * QUADS + j, thread, v);
      }
  }
}
} // namespace @SYM@_scope
