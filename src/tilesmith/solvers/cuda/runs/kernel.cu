// Forward, rows of x by copies of threads. The filter comes from memory in the order of products, each part once.
static_assert(STAGES * STAGE_BYTES + PIXELS * STAGED_PITCH * 4 == SHARED_BYTES, "sums lie behind the ring");

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) @SYM@(TS_PARAMETERS) {
  extern __shared__ __align__(128) unsigned char memory[];
  const Run run = TS_RUN;
  const u32 ring = shared_address(memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_w = warp % WARPS_W, warp_h = warp / WARPS_W % WARPS_H, warp_k = warp / (WARPS_W * WARPS_H);
  const int block_n = blockIdx.x % run.blocks_n, stride = gridDim.x / run.blocks_n;
  const uint4 *const filter = run.packed + (i64)block_n * STEPS * K_STEPS * QUADS * 32 + lane;
  launch_next();
  wait_previous();

  // Copies are issued between products, some in each of a warp's steps: the filter's loads would wait behind all of them.
  constexpr int COPIES = (IN_ROWS * CHUNKS + THREADS - 1) / THREADS;
  constexpr int IN_STEP = (COPIES + K_STEPS / WARPS_K - 1) / (K_STEPS / WARPS_K);
  int next_tile = blockIdx.x / run.blocks_n, next_step = 0, next_stage = 0, next_at = 0;
  u32 next_to = 0;
  Place next;
  const auto begin_load = [&] {
    next = place_of(run, next_tile, next_step);
    next_to = ring + next_stage * STAGE_BYTES, next_at = next_tile < run.tiles ? (int)threadIdx.x : IN_ROWS * CHUNKS;
    if (next_tile >= run.tiles) return;
    next_stage = next_stage + 1 == STAGES ? 0 : next_stage + 1;
    if (++next_step == STEPS) next_step = 0, next_tile += stride;
  };
  const auto load = [&](int count) {
#pragma unroll 2
    for (int c = 0; c < count && next_at < IN_ROWS * CHUNKS; c++, next_at += THREADS) {
      const int row = next_at / CHUNKS, h = next.top + row * STRIDE_H;
      const bool seen = next.seen && (u32)h < (u32)run.in_h;
      copy_chunk(run, next_to + row * ROW_BYTES, next.plane + h * run.x_h, seen, next.first, next_at % CHUNKS);
    }
  };
#pragma unroll 1
  for (int s = 0; s < STAGES - 1; s++) {
    begin_load();
    load(COPIES);
    copy_commit();
  }

  const Edges edges = edges_of(lane);
  const u32 mine = warp_h * ROWS * ROW_BYTES + (warp_w * PARTS * 16 + lane % 16) * STEP * 2 + lane / 16 * 16;
  float *const staged = (float *)(memory + STAGES * STAGE_BYTES);
  Sums sums;
  Fetched ahead;
  const auto fetch = [&](int step, int k_step) {
    const uint4 *const from = filter + (step * K_STEPS + k_step) * (QUADS * 32);
#pragma unroll
    for (int q = 0; q < QUADS; q++) ahead.quads[q] = from[q * 32];
  };
  fetch(0, warp_k);

  int stage = 0;
#pragma unroll 1
  for (int now = blockIdx.x / run.blocks_n; now < run.tiles; now += stride) {
    clear(sums);
#pragma unroll 1
    for (int step = 0; step < STEPS; step++) {
      copy_wait<STAGES - 2>();
      __syncthreads();
      begin_load();
      const u32 window = ring + stage * STAGE_BYTES + mine;
      stage = stage + 1 == STAGES ? 0 : stage + 1;
#pragma unroll 1
      for (int k_step = warp_k; k_step < K_STEPS; k_step += WARPS_K) {
        const Fetched by = ahead;
        if (k_step + WARPS_K < K_STEPS) fetch(step, k_step + WARPS_K);
        else fetch(step + 1 < STEPS ? step + 1 : 0, warp_k);
        load(IN_STEP);
        multiply_step(sums, window, k_step, step, by, edges);
      }
      copy_commit();
    }
    add_sums(sums, staged, warp_h, warp_w, warp_k);
    store_results(run, staged, now, block_n);
  }
  copy_wait<0>();
}
