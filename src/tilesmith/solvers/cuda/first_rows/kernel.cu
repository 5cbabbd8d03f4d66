// Convolution of few input channels by warpgroups. Rows of x lie in shared memory as they lie in memory: what a result
// reads of a row is one run of elements. A product's k are words of two elements of a run; lanes read them, and the filter
// is multiplied from shared memory. Where runs begin at odd elements, the words begin one element earlier; pixels whose
// runs begin at even and at odd elements have products of their own (VARIANTS), with filters of their own.
constexpr int FILTER = STEPS * BLOCK_N * 32, BIASES = ADDS ? (BLOCK_N * 4 + 127) / 128 * 128 : 0;
constexpr int WINDOW_AT = VARIANTS * FILTER + BIASES, WINDOW_BYTES = (WINDOW + 127) / 128 * 128;
constexpr int STAGED_AT = WINDOW_AT + (STAYS ? 2 : 1) * WINDOW_BYTES; // FILTER and BIASES are multiples of 128
// Staged results of a pixel, an odd number of 16 bytes: eight rows of lanes meet no bank twice.
constexpr int ROW = (BLOCK_N * (int)sizeof(Out) / 16 | 1) * 16, PIXELS = PARTS * 16; // of a warp at a time
constexpr int TASKS = TILE_H * TILE_W / PIXELS;
constexpr bool CROSSES = TILE_W % PIXELS != 0; // a warp's pixels may lie in several rows
static_assert(STAGED_AT + WARPS * PIXELS * ROW == SHARED_BYTES, "filters, biases, rows of x, results");
static_assert(!MULTIPLIES_BIAS || BLOCK_N <= THREADS, "a thread brings the bias of one column");
static_assert(PARTS % VARIANTS == 0 && TILE_W % VARIANTS == 0 && WARPS % 4 == 0, "whole products");
static_assert(TILE_H * TILE_W % PIXELS == 0 && VARIANTS * FILTER % 128 == 0, "whole tasks and lines");

// The filter as it was packed.
TS_MMA_DEVICE void load_filter(const Run &run, u32 to, int block) {
  const uint4 *const from = run.packed + (i64)block * (VARIANTS * FILTER / 16);
#pragma unroll 4
  for (int i = threadIdx.x; i < VARIANTS * FILTER / 16; i += THREADS) copy_async<16>(to + i * 16, from + i, 16);
}

// Where a block stays (STAYS), tiles are numbered; else they have blocks of their own.
TS_MMA_DEVICE Tile tile_of(const Run &run, int tile) {
  if constexpr (STAYS) {
    const int line = divided(tile, run.tiles_w_m, run.tiles_w_s), image = divided(line, run.tiles_h_m, run.tiles_h_s);
    const int n = FLAT ? image : divided(image, run.planes_m, run.planes_s);
    const int w = tile - line * run.tiles_w, h = line - image * run.tiles_h;
    return {n, FLAT ? 0 : image - n * run.planes, h * TILE_H, w * TILE_W};
  }
  const int n = FLAT ? blockIdx.z : blockIdx.z / run.out_d, d = FLAT ? 0 : blockIdx.z % run.out_d;
  return {n, d, (int)blockIdx.y * TILE_H, (int)blockIdx.x / BLOCKS_N * TILE_W};
}

// From the first pixel of sixteen to those of a variant in the window, in bytes; an even element.
TS_MMA_CONSTANT int variant_at(int variant) { return (SHIFT + variant * STEP) / 2 * 4; }
// Where the runs of the pixels `group` and `group + 8` of each sixteen of a warp begin.
struct Places {
  const unsigned char *of[PARTS / VARIANTS][2];
};
TS_MMA_DEVICE Places places_of(const unsigned char *window, int task, int group) {
  Places found;
#pragma unroll
  for (int i = 0; i < PARTS / VARIANTS; i++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int first = task * PIXELS + group * VARIANTS, away = (i * 16 + half * 8) * VARIANTS;
      if constexpr (CROSSES) {
        const int pixel = first + away;
        found.of[i][half] = window + pixel / TILE_W * (STRIDE_H * PITCH) + pixel % TILE_W * (STEP * 2);
      } else {
        const unsigned char *const from = window + first / TILE_W * (STRIDE_H * PITCH) + first % TILE_W * (STEP * 2);
        found.of[i][half] = from + away * (STEP * 2);
      }
    }
  return found;
}
// Where the pixel of a warp is staged, and the pixel that a part's row is: pixels of a part lie together.
TS_MMA_DEVICE int slot_of(int pixel) {
  return (pixel / (16 * VARIANTS) * VARIANTS + pixel % VARIANTS) * 16 + pixel / VARIANTS % 16;
}

// The last word of the last product, where no pixel has one: pixels have 1 there, and the filter the bias.
TS_MMA_DEVICE u32 one_at(int place) { return place == 3 ? ONE : 0; }
TS_MMA_CONSTANT int bias_piece(int variant) { return ((variant + 1) * STEPS * 2 - 1) * BLOCK_N; }
// Of the column whose piece of 16 bytes this thread has copied.
TS_MMA_DEVICE int bias_column(int variant) {
  return ((int)threadIdx.x + THREADS - bias_piece(variant) % THREADS) % THREADS;
}

// The warp's 16 x 16 elements of a product: words of two rows of the part. `nothing` is 0, which the compiler does not
// know: words that are the same constant would have one register, copied where the product must not wait for it.
TS_MMA_DEVICE void gather(u32 (&a)[4], const Places &places, int part, int step, int place, u32 nothing) {
  const int variant = part % VARIANTS;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int four = (variant * STEPS + step) * 2 + half;
    const int at = way_at(way_of(four), place) + (start_of(four) + variant_at(variant));
    const auto &rows = places.of[part / VARIANTS];
    a[half * 2] = *(const u32 *)(rows[0] + at), a[half * 2 + 1] = *(const u32 *)(rows[1] + at);
    if (masked(four)) {
      // What belongs to no tap may be no number: it must not meet the filter's zeros.
      const u32 keep = word_mask(four, place) | nothing;
      a[half * 2] &= keep, a[half * 2 + 1] &= keep;
      if (MULTIPLIES_BIAS && step == STEPS - 1 && half == 1) a[2] |= one_at(place), a[3] |= one_at(place);
    }
  }
}

TS_MMA_DEVICE void multiply_all(float (&sums)[PARTS][BLOCK_N / 2], u32 filters, const Places &from, int place,
                                u32 nothing) {
  constexpr int ROUNDS = (STEPS + MOST - 1) / MOST, AT_ONCE = (STEPS + ROUNDS - 1) / ROUNDS;
  const u64 matrix = (u64)(128 >> 4) << 32 | (u64)(BLOCK_N * 16 >> 4) << 16 | (u64)((filters & 0x3ffff) >> 4);
  u32 a[2][AT_ONCE][4];
#pragma unroll
  for (int i = 0; i < PARTS; i++)
#pragma unroll
    for (int round = 0; round < ROUNDS; round++) {
      u32(&mine)[AT_ONCE][4] = a[(i * ROUNDS + round) % 2];
      asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
#pragma unroll
      for (int s = 0; s < AT_ONCE; s++)
        if (round * AT_ONCE + s < STEPS)
          gather(mine[s], from, i, round * AT_ONCE + s, place, nothing);
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int s = 0; s < AT_ONCE; s++)
        if (round * AT_ONCE + s < STEPS)
          product(sums[i], mine[s], matrix + (u64)((i % VARIANTS * FILTER + (round * AT_ONCE + s) * BLOCK_N * 32) >> 4),
                  round + s != 0);
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) @SYM@(TS_PARAMETERS) {
  extern __shared__ __align__(128) unsigned char memory[];
  const Run run = TS_RUN;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, place = lane % 4;
  const int block = blockIdx.x % BLOCKS_N, column = block * BLOCK_N;
  const u32 start = shared_address(memory);
  float *const biases = (float *)(memory + VARIANTS * FILTER);
  int tile = blockIdx.x / BLOCKS_N;
  Tile t = tile_of(run, tile);
  launch_next();
  wait_previous();
  load_window(run, start + WINDOW_AT, t);
  load_filter(run, start, block);
  copy_commit();
  for (int i = threadIdx.x; ADDS && i < BLOCK_N; i += THREADS)
    biases[i] = column + i < K ? widened(run.bias[column + i]) : 0.0f;
  Out of_column[VARIANTS] = {}; // an Element, where the bias is multiplied
#pragma unroll
  for (int i = 0; MULTIPLIES_BIAS && i < VARIANTS; i++) {
    const int n = bias_column(i);
    if (n < BLOCK_N && column + n < K) of_column[i] = run.bias[column + n];
  }
  copy_wait<0>();
#pragma unroll
  for (int i = 0; MULTIPLIES_BIAS && i < VARIANTS; i++)
    if (bias_column(i) < BLOCK_N) *(Out *)(memory + (bias_piece(i) + bias_column(i)) * 16 + 12) = of_column[i];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); // products read the filter
  __syncthreads();
  unsigned char *const staged = memory + STAGED_AT + warp * PIXELS * ROW;
  const unsigned char *window = memory + WINDOW_AT;
  // Where the block stays, the next tile's rows are on their way while this one's are multiplied.
#pragma unroll 1
  do {
    const Tile now = t;
    if constexpr (STAYS) {
      if ((tile += gridDim.x / BLOCKS_N) < run.tiles) {
        t = tile_of(run, tile);
        load_window(run, start + WINDOW_AT + (window == memory + WINDOW_AT ? WINDOW_BYTES : 0), t);
      }
      copy_commit();
    }
    Out *const results = run.y + ((i64)now.n * run.y_n + (i64)now.d * run.y_d + column);
    // A warpgroup has the tasks of four warps at a time.
#pragma unroll 1
    for (int four = warp / 4 * 4; four < TASKS; four += WARPS) {
      const int mine = four + warp % 4, task = mine < TASKS ? mine : TASKS - 1;
      const Places from = places_of(window, task, group);
      float sums[PARTS][BLOCK_N / 2];
      multiply_all(sums, start, from, place, STAYS || CROSSES ? (u32)run.tiles >> 31 : 0);
      __syncwarp();
#pragma unroll
      for (int i = 0; i < PARTS; i++)
#pragma unroll
        for (int j = 0; j < BLOCK_N / 8; j++) {
          const int at = j * 8 + place * 2;
          Pack<float, 2> bias = {};
          if constexpr (ADDS) bias = *(const Pack<float, 2> *)(biases + at);
#pragma unroll
          for (int half = 0; half < 2; half++) {
            float v[2];
#pragma unroll
            for (int e = 0; e < 2; e++) {
              v[e] = sums[i][j * 4 + half * 2 + e];
              if constexpr (ADDS) v[e] += bias.v[e];
              if constexpr (!RELU) v[e] = activate(v[e]);
            }
            Pack<Out, 2> &to = *(Pack<Out, 2> *)(staged + (i * 16 + half * 8 + group) * ROW + at * (int)sizeof(Out));
            if constexpr (RELU)
              to = narrowed_relu(Out(), v[0], v[1]);
            else
              to = narrowed(Out(), v[0], v[1]);
          }
        }
      __syncwarp();
      constexpr int COLUMNS = K < BLOCK_N ? K : BLOCK_N, CHUNKS = COLUMNS / OUT_VECTOR, ALL = PIXELS * CHUNKS;
      constexpr int ROUNDS = (ALL + 31) / 32;
      const int row = task * PIXELS / TILE_W, first = task * PIXELS % TILE_W, h = now.h + row, w = now.w + first;
      Out *const to = results + (h * run.y_h + w * run.y_w);
      // NOTE: the addresses of more stores than that are computed ahead, and registers spill (NVRTC 13.0).
#pragma unroll(ROUNDS <= 32 ? ROUNDS : 8)
      for (int k = 0; k < ROUNDS; k++) {
        const int item = k * 32 + lane, pixel = item / CHUNKS, at = item % CHUNKS * OUT_VECTOR;
        const int below = CROSSES ? (first + pixel) / TILE_W : 0, right = pixel - below * TILE_W;
        const bool in_image = WHOLE || (h + below < run.out_h && w + right < run.out_w);
        const bool exists = in_image && (ALL % 32 == 0 || item < ALL) &&
                            (K % BLOCK_N == 0 || K < BLOCK_N || column + at < K);
        const Pack<Out, OUT_VECTOR> v =
            *(const Pack<Out, OUT_VECTOR> *)(staged + slot_of(pixel % PIXELS) * ROW + at * (int)sizeof(Out));
        const int away = DENSE ? item * OUT_VECTOR : below * run.y_h + right * run.y_w + at;
        if (mine < TASKS && exists) *(Pack<Out, OUT_VECTOR> *)(to + away) = v;
      }
    }
    if constexpr (!STAYS) break;
    copy_wait<0>();
    __syncthreads();
    window = memory + WINDOW_AT + (window == memory + WINDOW_AT ? WINDOW_BYTES : 0);
  } while (tile < run.tiles);
}
