namespace ts_mma {
namespace @SYM@_scope {
@HEADER@

// A warp is 4 x 8 threads; a thread has its rows (columns) by fours, which are 16 (32) apart.
constexpr int WARPS = WARPS_M * WARPS_N * WARPS_K;
constexpr int ROWS = BLOCK_M / WARPS_M / 4;
constexpr int COLUMNS = BLOCK_N / WARPS_N / 8;
constexpr int DEPTH = BLOCK_K / WARPS_K; // of a warp in a step
static_assert(THREADS == WARPS * 32 && ROWS % 4 == 0 && COLUMNS % 4 == 0, "warps share the tile");
static_assert(ROWS * WARPS_M * 4 == BLOCK_M && COLUMNS * WARPS_N * 8 == BLOCK_N, "warps share the tile");
static_assert(DEPTH % 2 == 0 && BLOCK_K % 8 == 0, "fragments take turns in two sets of registers");
// Results that take many instructions each are finished in a loop. Of a tile a warp has 16 rows at a time in shared
// memory then; all of them where warps add their sums there.
constexpr bool GATHERED = WARPS_K > 1 || OUT_VECTOR < 4 || FUSED;
constexpr int TURNS = WARPS_K > 1 ? 1 : ROWS / 4, UNROLLED = WARPS_K > 1 ? 2 : 1;
// Such kernels of 128 results a thread have half of a step's products in their text.
constexpr int HALVES = GATHERED && WARPS_K == 1 && ROWS * COLUMNS > 96 && DEPTH % 4 == 0 ? 2 : 1;
static_assert(STAGES >= 2, "one stage is copied while another one is multiplied");

TS_MMA_CONSTANT int power_of_two(int least) {
  int v = 1;
  while (v < least) v *= 2;
  return v;
}

// How the threads copy one operand's tile, which is BLOCK_K lines of EXTENT floats in shared memory.
// An operand whose rows (columns) are contiguous along k is transposed on its way: a warp copies 8 k of 4 rows, a float
// a thread. Those are whole sectors of memory, and as lines are padded they lie in 32 banks.
template <bool BY_K, int EXTENT, int VECTOR> struct Copies {
  static constexpr int PITCH = EXTENT + (BY_K ? 4 : 0), BYTES = BLOCK_K * PITCH * 4;
  static constexpr int WIDE = BY_K ? 4 : VECTOR, DEEP = BY_K ? 8 : 1; // what a worker copies at once
  static constexpr int WORKERS = BY_K ? WARPS : THREADS;
  static constexpr int ACROSS = EXTENT / WIDE, LINES = BLOCK_K / DEEP;
  static constexpr int ROUND = ACROSS % WORKERS ? power_of_two(ACROSS) : ACROSS;
  static constexpr int PLACES = ROUND > WORKERS ? ROUND / WORKERS : 1; // of a worker in a line
  static constexpr int STEP = ROUND > WORKERS ? 1 : WORKERS / ROUND;   // from line to line
  static constexpr int COUNT = (LINES + STEP - 1) / STEP; // lines of a thread
  static constexpr bool EVEN = ROUND == ACROSS && LINES % STEP == 0;
  static_assert(EXTENT % WIDE == 0 && (ROUND % WORKERS == 0 || WORKERS % ROUND == 0), "workers share a line evenly");

  const float *from; // of this step, at the thread's first k and row (column)
  i64 stride;        // from there to its next row (column)
  int rows;          // that exist, from the tile's first on
  int first_k;       // of the thread, in a step
  int row;           // of the thread, in the tile
  int step;          // from k to k; 1 where lines run along k
  u32 to;            // of the thread, in a stage

  TS_MMA_METHOD Copies(const float *base, int extent, int line_step, int k_step, int first) {
    const int worker = BY_K ? threadIdx.x / 32 : threadIdx.x, lane = threadIdx.x % 32;
    const int across = ROUND > WORKERS ? worker : worker % ROUND, line = ROUND > WORKERS ? 0 : worker / ROUND;
    step = BY_K ? 1 : k_step, rows = extent - first;
    first_k = line * DEEP + (BY_K ? lane % 8 : 0), row = across * WIDE + (BY_K ? lane / 8 : 0);
    to = (first_k * PITCH + row) * 4;
    kept(to);
    from = base + ((i64)first_k * step + (i64)(first + row) * line_step);
    stride = (i64)(WORKERS * WIDE) * line_step;
  }
  TS_MMA_METHOD void move_to(int k) { from += (i64)k * step; }
  // Copies the thread's part of a step to `stage`. INSIDE: all of it exists, else `left` k and what `rows` says. ROLLED:
  // in few instructions.
  template <bool INSIDE, bool ROLLED = false> TS_MMA_METHOD void take(u32 stage, int left) const {
    constexpr int BYTES = (BY_K ? 1 : VECTOR) * 4;
    const float *at = from;
#pragma unroll(ROLLED ? 1 : PLACES)
    for (int i = 0; i < PLACES; i++) {
      const int other = row + i * WORKERS * WIDE;
#pragma unroll(ROLLED && !BY_K ? 1 : COUNT)
      for (int k = 0; k < COUNT * STEP * DEEP; k += STEP * DEEP) {
        const bool wanted = EVEN || (first_k + k < BLOCK_K && other < EXTENT);
        const int valid = INSIDE || (first_k + k < left && other < rows) ? BYTES : 0;
        if (wanted) copy_async<BYTES>(stage + to + (k * PITCH + i * WORKERS * WIDE) * 4, at + k * step, valid);
      }
      at += stride;
      kept(at);
    }
  }
  TS_MMA_METHOD void take(u32 stage) const {
    if (EXTENT <= rows)
      take<true>(stage, BLOCK_K);
    else
      take<false>(stage, BLOCK_K);
  }
};
typedef Copies<A_BY_K, BLOCK_M, A_VECTOR> CopiesA;
typedef Copies<B_BY_K, BLOCK_N, B_VECTOR> CopiesB;
static_assert(STAGE_BYTES == CopiesA::BYTES + CopiesB::BYTES && STAGE_BYTES % 16 == 0, "a stage holds both tiles");

#if __CUDA_ARCH__ >= 1000
constexpr bool PAIRS = true; // of products are one instruction
#else
constexpr bool PAIRS = false;
#endif

// The products of two rows and a column; `back`: the second row first.
TS_MMA_DEVICE void multiply(bool back, float &sum0, float &sum1, float a0, float a1, float b) {
#if __CUDA_ARCH__ >= 1000
  asm("{ .reg .b64 x, y, z; mov.b64 x, {%2, %3}; mov.b64 y, {%4, %4}; mov.b64 z, {%0, %1}; "
      "fma.rn.f32x2 z, x, y, z; mov.b64 {%0, %1}, z; }"
      : "+f"(sum0), "+f"(sum1)
      : "f"(a0), "f"(a1), "f"(b));
#else
  if (back)
    sum1 = fmaf(a1, b, sum1), sum0 = fmaf(a0, b, sum0);
  else
    sum0 = fmaf(a0, b, sum0), sum1 = fmaf(a1, b, sum1);
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) @SYM@(TS_PARAMETERS) {
  Results run = {TS_RUN};
  extern __shared__ __align__(128) unsigned char memory[];
  const u32 ring = shared_address(memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_m = warp / WARPS_N % WARPS_M, warp_n = warp % WARPS_N, warp_k = warp / (WARPS_M * WARPS_N);
  // NOTE: neighbouring lanes share columns, those two apart share rows: so the four passes of a 16-byte load of a warp
  // become two (as in S. Gray's maxas SGEMM).
  const int lane_m = lane & 1 | lane >> 4 << 1, lane_n = lane >> 1 & 7;
  const u32 read_a = ring + (warp_k * DEPTH * CopiesA::PITCH + warp_m * ROWS * 4 + lane_m * 4) * 4;
  const u32 read_b =
      ring + CopiesA::BYTES + (warp_k * DEPTH * CopiesB::PITCH + warp_n * COLUMNS * 8 + lane_n * 4) * 4;
  wait_previous();

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
    CopiesA copies_a(run.a_base + layer * run.a_group, run.rows, run.a_line, run.a_channel, m0);
    CopiesB copies_b(run.b_base + layer * run.b_group, run.cols, run.b_line, run.b_channel, n0);
    // The first step of a tile has what k leaves over, so that all others are whole.
    const int rest = run.channels - (run.steps - 1) * BLOCK_K;
    const int first_k = begin ? rest + (begin - 1) * BLOCK_K : 0, first_left = begin ? BLOCK_K : rest;
    copies_a.move_to(first_k), copies_b.move_to(first_k);
    int more = end - begin; // steps that are not asked for yet
    auto asked = [&](int k) {
      copy_commit();
      copies_a.move_to(k), copies_b.move_to(k), more--;
    };
#pragma unroll 1
    for (int s = 0; s < STAGES - 1; s++) {
      if (more > 0) {
        copies_a.take<false, true>(ring + s * STAGE_BYTES, s ? BLOCK_K : first_left);
        copies_b.take<false, true>(ring + s * STAGE_BYTES + CopiesA::BYTES, s ? BLOCK_K : first_left);
      }
      asked(s ? BLOCK_K : first_left);
    }

    float sums[ROWS][COLUMNS], a[2][ROWS], b[2][COLUMNS];
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int j = 0; j < COLUMNS; j++) sums[i][j] = 0.0f;
    auto fetch = [&](int set, u32 from_a, u32 from_b, int k) {
#pragma unroll
      for (int i = 0; i < ROWS; i += 4) {
        const float4 v = shared_floats4(read_a + from_a + (k * CopiesA::PITCH + i * 4) * 4);
        a[set][i] = v.x, a[set][i + 1] = v.y, a[set][i + 2] = v.z, a[set][i + 3] = v.w;
      }
#pragma unroll
      for (int j = 0; j < COLUMNS; j += 4) {
        const float4 v = shared_floats4(read_b + from_b + (k * CopiesB::PITCH + j * 8) * 4);
        b[set][j] = v.x, b[set][j + 1] = v.y, b[set][j + 2] = v.z, b[set][j + 3] = v.w;
      }
    };
    copy_wait<STAGES - 2>();
    __syncthreads();
    u32 here = 0, next = (STAGES - 1) * STAGE_BYTES;
    fetch(0, here, here, 0);
#pragma unroll 1
    for (int half = begin * HALVES; half < end * HALVES; half++) {
      // All warps have fetched what lay at `next`.
      const bool first = HALVES == 1 || half % 2 == 0, second = HALVES == 1 || !first;
      u32 from_a = here, from_b = here;
      if (!first) from_a += DEPTH / 2 * CopiesA::PITCH * 4, from_b += DEPTH / 2 * CopiesB::PITCH * 4;
#pragma unroll
      for (int k = 0; k < DEPTH / HALVES; k++) {
        if (k == DEPTH / HALVES - 1) {
          if (second) {
            asked(BLOCK_K);
            copy_wait<STAGES - 2>();
            __syncthreads();
            here = here == (STAGES - 1) * STAGE_BYTES ? 0 : here + STAGE_BYTES;
            next = next == (STAGES - 1) * STAGE_BYTES ? 0 : next + STAGE_BYTES;
            from_a = from_b = here;
          } else {
            from_a += DEPTH / 2 * CopiesA::PITCH * 4, from_b += DEPTH / 2 * CopiesB::PITCH * 4;
          }
        }
        fetch((k + 1) % 2, from_a, from_b, (k + 1) % (DEPTH / HALVES));
        if (k == 0 && first && more > 0) copies_a.take(ring + next);
        if (k == (HALVES == 2 ? 0 : (DEPTH - 1) / 2) && second && more > 0) copies_b.take(ring + next + CopiesA::BYTES);
// NOTE: an FFMA reads three registers from two banks, each of which gives one a cycle, beside what `.reuse` has kept.
// Down one column and up the next ptxas keeps most: 2.07 reads an FFMA (SASS of nvcc 13.0), 2.15 where all go down.
#pragma unroll
        for (int j = 0; j < COLUMNS; j++)
#pragma unroll
          for (int down = 0; down < ROWS; down += 2) {
            const bool back = j % 2 && !PAIRS;
            const int i = back ? ROWS - 2 - down : down;
            multiply(back, sums[i][j], sums[i + 1][j], a[k % 2][i], a[k % 2][i + 1], b[k % 2][j]);
          }
      }
    }
    copy_wait<0>();

    // NOTE: results are stored by fours, from neighbouring registers. ptxas had the sums of the loop there as well, and
    // moved them in its first and last products to banks that do not collide: up to 9 % of all FFMAs read one bank
    // thrice. A zero that it cannot know keeps the two apart.
    const u32 zero = (u32)((unsigned long long)run.all_steps >> 62);
    u32 apart[ROWS][COLUMNS];
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int j = 0; j < COLUMNS; j++) apart[i][j] = __float_as_uint(sums[i][j]) ^ zero, kept(apart[i][j]);

    const bool whole = !PARTIAL || (begin == 0 && end == run.steps);
    float *const part = PARTIAL ? run.part_of(blockIdx.x, begin > 0) : nullptr;
    if constexpr (!GATHERED) {
      const int row = warp_m * ROWS * 4 + lane_m * 4, col = warp_n * COLUMNS * 8 + lane_n * 4;
      auto all = [&](auto store) {
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
          for (int j = 0; j < COLUMNS; j += 4) {
            float v[4];
#pragma unroll
            for (int e = 0; e < 4; e++) v[e] = __uint_as_float(apart[i][j + e]);
            store(v, i / 4 * 16 + i % 4, j * 8);
          }
      };
      if (whole) {
        i64 first = run.place_of(layer, m0 + row, n0 + col);
        int rows = run.rows - m0 - row, cols = run.cols - n0 - col; // that exist from there on
        kept(first), kept(rows), kept(cols);
        Out *const out = run.out_base + first;
        all([&](const float (&v)[4], int down, int right) {
          Out *const at = out + ((i64)down * run.out_line + (i64)right * run.column_step());
          run.finish(v, at, n0 + col + right, down < rows, cols - right);
        });
      } else {
        int place = row * BLOCK_N + col;
        kept(place);
        float *const mine = part + place;
        all([&](const float (&v)[4], int down, int right) {
          *(float4 *)(mine + (down * BLOCK_N + right)) = {v[0], v[1], v[2], v[3]};
        });
      }
    } else {
      // Through shared memory, where warps that share a part of the tile add their sums, and from where one text finishes
      // all results.
      constexpr int HELD = ROWS * 4 / TURNS; // rows of a warp that are there at a time
      constexpr int THERE = HELD * WARPS_M, PITCH = BLOCK_N + 4, QUADS = BLOCK_N / 4;
      const u32 mine = ring + ((warp_k * THERE + warp_m * HELD + lane_m * 4) * PITCH + warp_n * COLUMNS * 8 +
                               lane_n * 4) * 4;
#pragma unroll 1
      for (int turn = 0; turn < TURNS; turn++) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
          for (int j = 0; j < COLUMNS; j += 4)
            if (turn == i / 4 * 16 / HELD)
              shared_store16(mine + ((i / 4 * 16 % HELD + i % 4) * PITCH + j * 8) * 4, apart[i][j], apart[i][j + 1],
                             apart[i][j + 2], apart[i][j + 3]);
        __syncthreads();
#pragma unroll UNROLLED
        for (int at = threadIdx.x; at < THERE * QUADS; at += THREADS) {
          const int there = at / QUADS, col = at % QUADS * 4;
          const int row = there / HELD * (ROWS * 4) + turn * HELD + there % HELD;
          float v[4] = {};
#pragma unroll
          for (int w = 0; w < WARPS_K; w++) {
            const float4 more_sums = shared_floats4(ring + ((w * THERE + there) * PITCH + col) * 4);
            v[0] += more_sums.x, v[1] += more_sums.y, v[2] += more_sums.z, v[3] += more_sums.w;
          }
          if (whole)
            run.finish(v, run.out_base + run.place_of(layer, m0 + row, n0 + col), n0 + col, m0 + row < run.rows,
                       run.cols - n0 - col);
          else
            *(float4 *)(part + row * BLOCK_N + col) = {v[0], v[1], v[2], v[3]};
        }
      }
    }
    if constexpr (STREAM) {
      __syncthreads(); // the ring is free for the next tile
      if (ahead)
        ahead--;
      else
        now += end - begin;
    }
  } while (STREAM && now < last);
}
} // namespace @SYM@_scope
} // namespace ts_mma
