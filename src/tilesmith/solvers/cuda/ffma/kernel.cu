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
  Stages stages(ring);
  wait_previous();
  if (stages.begin(run, ring)) return;
  each_tile(run, [&](int begin, int end, int layer, int m0, int n0) {
    Feed feed(run, ring, stages, begin, end, layer, m0, n0);
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
    feed.wait();
    fetch(0, feed.from_a, feed.from_b, 0);
#pragma unroll 1
    for (int turn = begin * PARTS; turn < end * PARTS; turn++) {
      const int part = PARTS == 1 ? 0 : turn % PARTS;
#pragma unroll
      for (int k = 0; k < TURN; k++) {
        feed.before(k, part, turn + 1 < end * PARTS);
        fetch((k + 1) % 2, feed.from_a, feed.from_b, (k + 1) % TURN);
        feed.between(k, part);
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
      feed.after(part);
    }
    feed.end();

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
      constexpr int HELD = ROWS * 4 / SWEEPS; // rows of a warp that are there at a time
      constexpr int THERE = HELD * WARPS_M, PITCH = BLOCK_N + 4, QUADS = BLOCK_N / 4;
      const u32 mine = ring + ((warp_k * THERE + warp_m * HELD + lane_m * 4) * PITCH + warp_n * COLUMNS * 8 +
                               lane_n * 4) * 4;
#pragma unroll 1
      for (int sweep = 0; sweep < SWEEPS; sweep++) {
        warps_sync();
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
          for (int j = 0; j < COLUMNS; j += 4)
            if (sweep == i / 4 * 16 / HELD)
              shared_store16(mine + ((i / 4 * 16 % HELD + i % 4) * PITCH + j * 8) * 4, apart[i][j], apart[i][j + 1],
                             apart[i][j + 2], apart[i][j + 3]);
        warps_sync();
#pragma unroll UNROLLED
        for (int at = threadIdx.x; at < THERE * QUADS; at += WARPS * 32) {
          const int there = at / QUADS, col = at % QUADS * 4;
          const int row = there / HELD * (ROWS * 4) + sweep * HELD + there % HELD;
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
    feed.stored();
  });
}
