// A warp is 4 x 8 threads; a thread has its rows (columns) by fours, which are 16 (32) apart.
constexpr int WARPS = WARPS_M * WARPS_N * WARPS_K;
constexpr int ROWS = BLOCK_M / WARPS_M / 4;
constexpr int COLUMNS = BLOCK_N / WARPS_N / 8;
constexpr int DEPTH = BLOCK_K / WARPS_K; // of a warp in a step
static_assert(THREADS == WARPS * 32 + PRODUCERS * 128 && ROWS % 4 == 0 && COLUMNS % 4 == 0, "warps share the tile");
static_assert(ROWS * WARPS_M * 4 == BLOCK_M && COLUMNS * WARPS_N * 8 == BLOCK_N, "warps share the tile");
static_assert(DEPTH % 2 == 0 && BLOCK_K % 8 == 0, "fragments take turns in two sets of registers");
// Results that take many instructions each are finished in a loop. Of a tile a warp has 16 rows at a time in shared
// memory then; all of them where warps add their sums there.
constexpr bool GATHERED = WARPS_K > 1 || OUT_VECTOR < 4 || FUSED;
constexpr int SWEEPS = WARPS_K > 1 ? 1 : ROWS / 4, UNROLLED = WARPS_K > 1 ? 2 : 1;
// Products of a warp along k in a turn of the loop. NOTE: a text of 2,048 products is 35 kB of instructions, and slower
// than half of them in two turns (2048 x 2048 x 2048 on an H200: 357 and 351 us; in four turns 362); one of 1,536 is not
// (358 and 367 us).
TS_MMA_CONSTANT int in_a_turn(int depth) {
  while (depth * ROWS * COLUMNS > 1536 && depth % 4 == 0) depth /= 2;
  return depth;
}
constexpr int TURN = in_a_turn(DEPTH), PARTS = DEPTH / TURN; // turns of a step
// The threads that copy: those of a warpgroup of its own, or all.
constexpr int FIRST_COPIER = PRODUCERS ? WARPS * 32 : 0, COPY_THREADS = THREADS - FIRST_COPIER;
static_assert(STAGES >= 2, "one stage is copied while another one is multiplied");

// Tiles of a block, and the steps of each that it computes: whole tiles ahead of those that blocks share.
template <typename Body> TS_MMA_DEVICE void each_tile(const Results &run, Body body) {
  int tile = blockIdx.x, begin = 0, end = run.steps;
  auto now = PARTIAL ? run.first_step(blockIdx.x) : 0;
  const auto last = PARTIAL ? run.first_step(blockIdx.x + 1) : 0;
  int ahead = run.waves; // of whole tiles, which come first
#pragma unroll 1
  do {
    if constexpr (STREAM) tile = blockIdx.x + (run.waves - ahead) * (int)run.blocks;
    if (PARTIAL && ahead == 0) {
      const int shared = STREAM ? divided((int)now, run.steps_m, run.steps_s) : (int)(now / run.steps);
      tile = run.waves * (int)run.blocks + shared, begin = (int)(now - shared * (decltype(now))run.steps);
      end = (int)(last - now < run.steps - begin ? begin + (last - now) : run.steps);
    }
    int layer, m0, n0;
    run.place(tile, layer, m0, n0);
    body(begin, end, layer, m0, n0);
    if constexpr (STREAM) {
      if (ahead)
        ahead--;
      else
        now += end - begin;
    }
  } while (STREAM && now < last);
}
// The first step of a share of a tile: the tile's first step has what k leaves over, so that all others are whole.
TS_MMA_DEVICE int first_k(const Results &run, int begin) {
  return begin ? run.channels - (run.steps - begin) * BLOCK_K : 0;
}
TS_MMA_DEVICE int first_left(const Results &run, int begin) {
  return begin ? BLOCK_K : run.channels - (run.steps - 1) * BLOCK_K;
}
