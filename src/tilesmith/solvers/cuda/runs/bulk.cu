// Forward, rows of x and parts of the filter by bulk copies. Parts of the filter lie in a ring of their own, which all
// warps read: a part has PART_K sixteens of a run. Warps that bring no rows bring parts in turn, or all where each has a
// row.
constexpr int PART_BYTES = PART_K * QUADS * 512, STEP_PARTS = (K_STEPS + PART_K - 1) / PART_K;
constexpr int PARTS_AT = STAGES * STAGE_BYTES, PART_FULL = PARTS_AT + FILTER_PARTS * PART_BYTES;
constexpr int PART_READ = PART_FULL + FILTER_PARTS * 8;
// A part is asked for by a warp that has read another one, in the place of the one ahead of that.
constexpr int AHEAD = FILTER_PARTS - 1, FIRST_BRINGER = WARPS > IN_ROWS ? IN_ROWS : 0;
// Where a stage is one part, what a part replaces was read in an earlier stage, for which every lane has arrived, as
// warps know that bring rows. Else every lane arrives for parts as well: racecheck does not follow what __syncwarp puts
// ahead of one lane's arrival.
constexpr bool LANES_ARRIVE = STEP_PARTS > 1 || WARPS > IN_ROWS;
static_assert(BULK && AHEAD > 0 && PART_K % WARPS_K == 0, "whole parts");
static_assert(PART_READ + FILTER_PARTS * 8 <= SHARED_BYTES, "parts lie behind the ring of rows");
static_assert(STAGE_BYTES >= PIXELS * STAGED_PITCH * 4 + BARRIER_BYTES, "sums take the place of the last stage");

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) @SYM@(TS_PARAMETERS) {
  extern __shared__ __align__(128) unsigned char memory[];
  const Run run = TS_RUN;
  const u32 ring = shared_address(memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_w = warp % WARPS_W, warp_h = warp / WARPS_W % WARPS_H, warp_k = warp / (WARPS_W * WARPS_H);
  const int block_n = blockIdx.x % run.blocks_n, stride = gridDim.x / run.blocks_n, first = blockIdx.x / run.blocks_n;
  const uint4 *const filter = run.packed + (i64)block_n * STEPS * K_STEPS * QUADS * 32;
  launch_next();
  if (threadIdx.x == 0) {
#pragma unroll
    for (int i = 0; i < FILTER_PARTS; i++) {
      ts_barrier_init(ring + PART_FULL + i * 8, 1);
      ts_barrier_init(ring + PART_READ + i * 8, LANES_ARRIVE ? THREADS : WARPS);
    }
  }
  make_barriers(ring, IN_ROWS, THREADS);
  wait_previous();

  // The next part's place in the ring, and in the filter.
  int part_at = 0, part_step = 0, part_of_step = 0;
  int parts_left = (run.tiles - first + stride - 1) / stride * (STEPS * STEP_PARTS);
  u32 part_turn = 0;
  bool part_used = false;
  const auto bring_part = [&] {
    if (parts_left == 0) return;
    const bool brings = FIRST_BRINGER + parts_left % (WARPS - FIRST_BRINGER) == warp;
    if (brings && part_used) barrier_wait(ring + PART_READ + part_at * 8, part_turn ^ 1);
    const int begin = part_of_step * PART_K, count = smaller(K_STEPS - begin, PART_K);
    if (brings && lane == 0) {
      const u32 barrier = ring + PART_FULL + part_at * 8;
      ts_expect(barrier, count * (QUADS * 512));
      ts_load_run(ring + PARTS_AT + part_at * PART_BYTES, filter + (part_step * K_STEPS + begin) * (QUADS * 32),
                  count * (QUADS * 512), barrier);
    }
    parts_left--;
    if (++part_at == FILTER_PARTS) part_at = 0, part_turn ^= 1, part_used = true;
    if (++part_of_step == STEP_PARTS) {
      part_of_step = 0;
      if (++part_step == STEPS) part_step = 0;
    }
  };
  int next_tile = first, next_step = 0, next_stage = 0;
  const auto bring_stage = [&] {
    if (next_tile >= run.tiles) return;
    const Place next = place_of(run, next_tile, next_step);
    const u32 to = ring + next_stage * STAGE_BYTES;
    next_stage = next_stage + 1 == STAGES ? 0 : next_stage + 1;
    if (++next_step == STEPS) next_step = 0, next_tile += stride;
#pragma unroll 1
    for (int row = warp; row < IN_ROWS; row += WARPS) {
      const int h = next.top + row * STRIDE_H;
      const bool seen = next.seen && (u32)h < (u32)run.in_h;
      bring_row(run, to + row * ROW_BYTES, next.plane + h * run.x_h, seen, next.first, to + FULL_AT);
    }
  };
  bring_stage();
#pragma unroll 1
  for (int i = 0; i < AHEAD; i++) bring_part();
#pragma unroll 1
  for (int s = 1; s < STAGES - 1; s++) bring_stage();

  const Edges edges = edges_of(lane);
  const u32 mine = warp_h * ROWS * ROW_BYTES + (warp_w * PARTS * 16 + lane % 16) * STEP * 2 + lane / 16 * 16;
  Sums sums;
  int stage = 0, part = 0;
  u32 turn = 0, of_part = 0;
  bool used = false;
#pragma unroll 1
  for (int now = first; now < run.tiles; now += stride) {
    clear(sums);
    u32 this_stage = ring;
#pragma unroll 1
    for (int step = 0; step < STEPS; step++) {
      this_stage = ring + stage * STAGE_BYTES;
      barrier_wait(this_stage + FULL_AT, turn);
      // The stage before this one, whose place is next, was waited for in this turn, or in the one before.
      const u32 before = ring + (stage == 0 ? STAGES - 1 : stage - 1) * STAGE_BYTES;
      if (used && warp < IN_ROWS) barrier_wait(before + READ_AT, stage == 0 ? turn ^ 1 : turn);
      bring_stage();
      used = true;
      stage = stage + 1 == STAGES ? 0 : stage + 1;
      if (stage == 0) turn ^= 1;
#pragma unroll 1
      for (int begin = 0; begin < K_STEPS; begin += PART_K) {
        barrier_wait(ring + PART_FULL + part * 8, of_part);
        const uint4 *const from = (const uint4 *)(memory + PARTS_AT + part * PART_BYTES) + lane;
        const int count = smaller(K_STEPS - begin, PART_K);
#pragma unroll 1
        for (int k = warp_k; k < count; k += WARPS_K) {
          Fetched by;
#pragma unroll
          for (int q = 0; q < QUADS; q++) by.quads[q] = from[(k * QUADS + q) * 32];
          multiply_step(sums, this_stage + mine, begin + k, step, by, edges);
        }
        if constexpr (!LANES_ARRIVE) __syncwarp();
        if (LANES_ARRIVE || lane == 0) barrier_arrive(ring + PART_READ + part * 8, 1);
        bring_part();
        if (++part == FILTER_PARTS) part = 0, of_part ^= 1;
      }
      // Every lane arrives for what it has read: lanes write zeros there.
      if (step + 1 < STEPS) barrier_arrive(this_stage + READ_AT, 1);
    }
    float *const staged = (float *)(memory + (this_stage - ring));
    __syncthreads();
    add_sums(sums, staged, warp_h, warp_w, warp_k);
    store_results(run, staged, now, block_n);
    ts_async_fence();
    barrier_arrive(this_stage + READ_AT, 1);
  }
}
