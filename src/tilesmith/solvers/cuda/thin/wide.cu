namespace ts_mma {
namespace @SYM@_scope {
@HEADER@
constexpr int STEPS = (K + 15) / 16, TILES = (N + 7) / 8, PARTS = SLAB / 16, COLUMNS = TILES * 8;
// Two matrices of 8 k for each step, of columns of 16 bytes; steps begin in banks of their own.
constexpr int STEP_BYTES = COLUMNS * 32 + 16, FILTER = (STEPS * STEP_BYTES + 127) / 128 * 128, BIASES = (COLUMNS * 4 + 127) / 128 * 128;
constexpr int BARRIERS = FILTER + BIASES, RING = BARRIERS + (WARPS * STAGES * 8 + 127) / 128 * 128;
constexpr int PITCH_A = K + PAD_A, PITCH_OUT = N + PAD_OUT;
#if RESIDUAL
// Results take the place of the residual, of which each lane reads what it writes. The rows that they come from lie
// behind it. Reads go beyond a row, as far as whole products do.
constexpr int READ = bytes_of_slab<Element, K, PAD_A>(), WRITTEN = bytes_of_slab<Out, N, PAD_OUT>();
static_assert(STAGE == WRITTEN + READ, "a stage is a slab of either kind");
constexpr int HALVES = sizeof(Out) / 2; // elements of two bytes in one of the residual, as which it is copied
#else
// Results take the place of the rows that they come from. Reads go beyond a row, as far as whole products do.
constexpr int READ = bytes_of_slab<Element, K, PAD_A>(), WRITTEN = bytes_of_slab<Out, N, PAD_OUT>();
static_assert(STAGE == (READ > WRITTEN ? READ : WRITTEN), "a stage is a slab, of either kind");
#endif
constexpr int OWN = STAGES * STAGE + 64;
static_assert(RING + WARPS * OWN == SHARED_BYTES, "as counted");
static_assert(WARPS % 4 == 0, "whole warpgroups");
// A product's rows are any 16 rows, the same in sums: where a width is odd, a lane takes an even row and the next.
constexpr int HALF_STEP = ROW_STEP == 2 ? 1 : 8;
constexpr bool ODD_A = PITCH_A % 2 != 0, ODD_OUT = PITCH_OUT % 2 != 0;
static_assert(ROW_STEP == 2 || (!ODD_A && !ODD_OUT), "it is known which rows are odd");
constexpr int AT_ONCE = 8, ROUNDS = (STEPS + AT_ONCE - 1) / AT_ONCE; // steps whose operands are in registers together
static_assert(AT_ONCE % SPREAD_K == 0, "whole runs");

// --- a product's k are any 16 elements, and its columns any 8, the same in both operands and in sums ---
// SPREAD products in a row share elements that lie densely, of which each of the four lanes of a row has a run: then
// lanes meet in few banks, and odd rows are read and written as words. EACH is what a lane has of a product.
template <int EACH, int COUNT, int SPREAD> struct Runs {
  // Products that share a run with product `first`, which begins one.
  TS_MMA_CONSTANT int length(int first) { return COUNT - first < SPREAD ? COUNT - first : SPREAD; }
  // The first element that lane `place` has of product `at`.
  static TS_MMA_METHOD int element(int at, int place) {
    const int first = at / SPREAD * SPREAD;
    return first * 4 * EACH + place * length(first) * EACH + (at - first) * EACH;
  }
  // The product, the lane's place and the number of an element.
  static TS_MMA_METHOD void find(int element, int &at, int &place, int &number) {
    constexpr int TAIL = COUNT % SPREAD ? COUNT % SPREAD : SPREAD;
    const int first = element / (4 * EACH * SPREAD) * SPREAD, rest = element - first * 4 * EACH;
    place = first + SPREAD <= COUNT ? rest / (EACH * SPREAD) : rest / (EACH * TAIL);
    const int in_run = rest - place * EACH * (first + SPREAD <= COUNT ? SPREAD : TAIL);
    at = first + in_run / EACH, number = in_run % EACH;
  }
};
typedef Runs<4, STEPS, SPREAD_K> RunsK;
typedef Runs<2, TILES, SPREAD_N> RunsN;

// The filter as products read it, with zeros beyond its edges. A thread brings four neighbours of k of a column, which
// one lane has of one product; BATCH of them are under way, and in the text. Lanes of a warp store into banks of their
// own, and read neighbours in memory: of k, or (BY_COLUMNS) pairs of columns.
TS_MMA_DEVICE void fill(unsigned char *memory, const Element *b, i64 b_row, i64 b_column) {
  constexpr int QUADS = STEPS * 4, ALL = QUADS * COLUMNS, EACH = (ALL + WARPS * 32 - 1) / (WARPS * 32);
  constexpr int BATCH = EACH < 8 ? EACH : EACH < 16 ? (EACH + 1) / 2 : 8;
#pragma unroll 1
  for (int first = 0; first < EACH; first += BATCH) {
    Element v[BATCH][4];
    int to[BATCH];
#pragma unroll
    for (int l = 0; l < BATCH; l++) {
      const int i = (first + l) * (WARPS * 32) + threadIdx.x;
      int n, k, step, lane_k, slot; // the column's place among those of products
      if (BY_COLUMNS) {
        lane_k = i % 4, slot = i / 4 % COLUMNS, step = i / (4 * COLUMNS);
        k = RunsK::element(step, lane_k), n = RunsN::element(slot / 8, slot % 8 / 2) + slot % 2;
      } else {
        int in_k, tile, lane_n, in_n;
        n = i / QUADS, k = i % QUADS * 4;
        RunsK::find(k, step, lane_k, in_k), RunsN::find(n, tile, lane_n, in_n);
        slot = tile * 8 + lane_n * 2 + in_n;
      }
      const Element *const from = b + k * b_row + n * b_column;
#pragma unroll
      for (int e = 0; e < 4; e++) {
        v[l][e] = {};
        if (i < ALL && n < N && k + e < K) v[l][e] = from[e * b_row];
      }
      to[l] = i < ALL ? step * STEP_BYTES + slot * 16 + lane_k * 4 : -1;
    }
#pragma unroll
    for (int l = 0; l < BATCH; l++)
      if (to[l] >= 0) {
        *(Pack<Element, 2> *)(memory + to[l]) = {{v[l][0], v[l][1]}};
        *(Pack<Element, 2> *)(memory + to[l] + COLUMNS * 16) = {{v[l][2], v[l][3]}};
      }
  }
}

// A lane's run of a row: first and second pairs of `length` products.
template <bool ODD, int HALF> TS_MMA_DEVICE void load_run(u32 (*f)[4], const unsigned char *from, int length) {
  if constexpr (PITCH_A % 4 == 0) {
#pragma unroll
    for (int i = 0; i < SPREAD_K; i++)
      if (i < length) {
        const Pack<u32, 2> v = *(const Pack<u32, 2> *)(from + i * 8);
        f[i][HALF] = v.v[0], f[i][HALF + 2] = v.v[1];
      }
  } else {
    const u32 *const words = (const u32 *)(from - (ODD ? 2 : 0));
    u32 v[SPREAD_K * 2 + 1];
#pragma unroll
    for (int i = 0; i < SPREAD_K * 2 + 1; i++)
      if (i < length * 2 + ODD) v[i] = words[i];
#pragma unroll
    for (int i = 0; i < SPREAD_K; i++)
      if (i < length) {
        f[i][HALF] = ODD ? __funnelshift_r(v[i * 2], v[i * 2 + 1], 16) : v[i * 2];
        f[i][HALF + 2] = ODD ? __funnelshift_r(v[i * 2 + 1], v[i * 2 + 2], 16) : v[i * 2 + 1];
      }
  }
}
TS_MMA_DEVICE u32 kept(int left) { return left >= 2 ? ~0u : left == 1 ? 0xffffu : 0u; }

// Operands of up to AT_ONCE steps from `first` on, of the 16 rows at `from`.
TS_MMA_DEVICE void load_rows(u32 (&f)[AT_ONCE][4], const unsigned char *from, int first, int place) {
#pragma unroll
  for (int s = 0; s < AT_ONCE; s += SPREAD_K) {
    if (first + s >= STEPS) break;
    const int length = RunsK::length(first + s);
    const unsigned char *const at = from + RunsK::element(first + s, place) * 2;
    load_run<false, 0>(f + s, at, length);
    load_run<ODD_A, 1>(f + s, at + HALF_STEP * PITCH_A * 2, length);
#pragma unroll
    for (int i = 0; i < SPREAD_K; i++) {
      if (i >= length || RunsK::element(first + s + i, 3) + 4 <= K) continue;
      // What lies beyond a row's end is the next row's: it must not meet the filter's zeros, for it may be no number.
      const int left = K - RunsK::element(first + s + i, place);
      f[s + i][0] &= kept(left), f[s + i][1] &= kept(left);
      f[s + i][2] &= kept(left - 2), f[s + i][3] &= kept(left - 2);
    }
  }
}

// A lane's run of a row of results: `length` pairs, of which `left` elements exist.
template <bool ODD> TS_MMA_DEVICE void store_run(Out *to, const Pack<Out, 2> (&v)[SPREAD_N], int length, int left) {
  constexpr bool WORDS = sizeof(Out) == 2;
#pragma unroll
  for (int t = 0; t < SPREAD_N; t++) {
    if (t >= length) continue;
    Out *const at = to + t * 2;
    if (WORDS && !ODD && PITCH_OUT % 4 == 0 && SPREAD_N > 1 && length % 2 == 0) {
      if (t % 2) continue;
      const Pack<Out, 2> next = v[t + 1 < SPREAD_N ? t + 1 : t];
      if (t * 2 + 3 < left) {
        *(Pack<Out, 4> *)at = {{v[t].v[0], v[t].v[1], next.v[0], next.v[1]}};
      } else {
        if (t * 2 < left) at[0] = v[t].v[0];
        if (t * 2 + 1 < left) at[1] = v[t].v[1];
        if (t * 2 + 2 < left) at[2] = next.v[0];
      }
    } else if (!ODD) {
      if (t * 2 + 1 < left) *(Pack<Out, 2> *)at = v[t];
      else if (t * 2 < left) at[0] = v[t].v[0];
    } else {
      // Pairs that begin at the second element.
      if (t == 0 && left > 0) at[0] = v[0].v[0];
      if (WORDS && t + 1 < length && t * 2 + 2 < left) {
        *(Pack<Out, 2> *)(at + 1) = {{v[t].v[1], v[t + 1 < SPREAD_N ? t + 1 : t].v[0]}};
      } else {
        if (t * 2 + 1 < left) at[1] = v[t].v[1];
        if (!WORDS && t + 1 < length && t * 2 + 2 < left) at[2] = v[t + 1 < SPREAD_N ? t + 1 : t].v[0];
      }
    }
  }
}

#if RESIDUAL
// A lane's run of a row of the residual, by the accesses of store_run: no lane reads what another one writes.
template <bool ODD> TS_MMA_DEVICE void load_added(Pack<Out, 2> (&v)[SPREAD_N], const Out *from, int length, int left) {
  constexpr bool WORDS = sizeof(Out) == 2;
#pragma unroll
  for (int t = 0; t < SPREAD_N; t++) {
    if (t >= length) continue;
    const Out *const at = from + t * 2;
    Pack<Out, 2> &next = v[t + 1 < SPREAD_N ? t + 1 : t];
    if (WORDS && !ODD && PITCH_OUT % 4 == 0 && SPREAD_N > 1 && length % 2 == 0) {
      if (t % 2 || t * 2 >= left) continue; // rows are whole fours
      const Pack<Out, 4> four = *(const Pack<Out, 4> *)at;
      v[t] = {{four.v[0], four.v[1]}}, next = {{four.v[2], four.v[3]}};
    } else if (!ODD) {
      if (t * 2 + 1 < left) v[t] = *(const Pack<Out, 2> *)at;
      else if (t * 2 < left) v[t].v[0] = at[0];
    } else {
      // Pairs that begin at the second element.
      if (t == 0 && left > 0) v[0].v[0] = at[0];
      if (WORDS && t + 1 < length && t * 2 + 2 < left) {
        const Pack<Out, 2> pair = *(const Pack<Out, 2> *)(at + 1);
        v[t].v[1] = pair.v[0], next.v[0] = pair.v[1];
      } else {
        if (t * 2 + 1 < left) v[t].v[1] = at[1];
        if (!WORDS && t + 1 < length && t * 2 + 2 < left) next.v[0] = at[2];
      }
    }
  }
}

// The warp's slabs of that number, into one of its stages: rows without gaps come in one piece.
TS_MMA_DEVICE void load_stage(unsigned char *memory, int ring, u32 barriers, int stage, const Element *a,
                              const Out *residual, int slab, i64 rows, int lane) {
  const int to = ring + stage * STAGE;
  const u32 barrier = barriers + stage * 8;
  const Element *const added = (const Element *)residual;
  if (PAD_A) load_slab<32, K, PAD_A>(memory, to + WRITTEN, a, slab, rows, lane);
  if (PAD_OUT) load_slab<32, N * HALVES, PAD_OUT * HALVES>(memory, to, added, slab, rows, lane);
  if (PAD_A || PAD_OUT) copy_commit();
  if (!PAD_A) load_piece<K>(memory, to + WRITTEN, a, slab, rows, lane, barrier);
  if (!PAD_OUT) load_piece<N * HALVES>(memory, to, added, slab, rows, lane, barrier);
}
#else
// The warp's slab of that number, into one of its stages: rows without gaps come in one piece.
TS_MMA_DEVICE void load_stage(unsigned char *memory, int ring, u32 barriers, int stage, const Element *a, int slab, i64 rows,
                              int lane) {
  if (PAD_A) {
    load_slab<32, K, PAD_A>(memory, ring + stage * STAGE, a, slab, rows, lane);
    copy_commit();
  } else {
    load_piece<K>(memory, ring + stage * STAGE, a, slab, rows, lane, barriers + stage * 8);
  }
}
#endif
// The stage, whose results were stored, is free. A load of rows without gaps is not ordered behind what the warp read.
TS_MMA_DEVICE void free_stage(int lane) {
  if (!PAD_OUT && lane == 0) ts_store_wait_read<0>();
  if (PAD_OUT && !PAD_A) ts_async_fence();
  __syncwarp();
}

// Every warp brings and stores slabs of its own; the four warps of a group multiply together, 16 rows each.
extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) @SYM@(TS_PARAMETERS) {
  extern __shared__ __align__(128) unsigned char memory[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, place = lane % 4;
  const int slabs = (int)((rows + SLAB - 1) / SLAB), stride = gridDim.x * WARPS, first = blockIdx.x * WARPS + warp;
  const int ring = RING + warp * OWN;
  const u32 barriers = shared_address(memory) + BARRIERS + warp * STAGES * 8;
#if RESIDUAL
  if ((!PAD_A || !PAD_OUT) && lane == 0) {
    for (int s = 0; s < STAGES; s++) ts_barrier_init(barriers + s * 8, !PAD_A + !PAD_OUT);
    ts_barrier_init_done();
  }
  __syncwarp();
  wait_previous();
#pragma unroll
  for (int s = 0; s < STAGES; s++) load_stage(memory, ring, barriers, s, a, residual, first + s * stride, rows, lane);
#else
  if (!PAD_A && lane == 0) {
    for (int s = 0; s < STAGES; s++) ts_barrier_init(barriers + s * 8, 1);
    ts_barrier_init_done();
  }
  __syncwarp();
  wait_previous();
#pragma unroll
  for (int s = 0; s < STAGES; s++) load_stage(memory, ring, barriers, s, a, first + s * stride, rows, lane);
#endif
  fill(memory, b, b_row, b_column);
  float *const biases = (float *)(memory + FILTER);
  for (int i = threadIdx.x; BIAS && i < COLUMNS; i += WARPS * 32) biases[i] = i < N ? widened(bias[i]) : 0.0f;
  ts_async_fence();
  __syncthreads();

  const u64 filter = (u64)(128 >> 4) << 32 | (u64)COLUMNS << 16 | (u64)((shared_address(memory) & 0x3ffff) >> 4);
  const float factor = (float)alpha;

  int now = 0;
  u32 phase = 0;
  // The warps of a group leave the loop together; what has no slab is computed in vain.
#pragma unroll 1
  for (int slab = first; slab - warp % 4 < slabs; slab += stride) {
#if RESIDUAL
    if (PAD_A || PAD_OUT) copy_wait<STAGES == 1 ? 0 : STAGES - 2>(); // the stage behind is not asked for yet
    if ((!PAD_A || !PAD_OUT) && slab < slabs) barrier_wait(barriers + now * 8, phase);
#else
    if (PAD_A) copy_wait<STAGES == 1 ? 0 : STAGES - 2>(); // the stage behind is not asked for yet
    else if (slab < slabs) barrier_wait(barriers + now * 8, phase);
#endif
    __syncwarp();
    float sums[PARTS][TILES * 4];
    u32 f[2][AT_ONCE][4];
    unsigned char *const staged = memory + ring + now * STAGE;
#if RESIDUAL
    const unsigned char *const from = staged + WRITTEN + group * ROW_STEP * PITCH_A * 2;
#else
    const unsigned char *const from = staged + group * ROW_STEP * PITCH_A * 2;
#endif
#pragma unroll
    for (int i = 0; i < PARTS * ROUNDS; i++) {
      u32(&mine)[AT_ONCE][4] = f[i % 2];
      const int part = i / ROUNDS, s0 = i % ROUNDS * AT_ONCE;
      if (i > 1) { // until the products that read these registers have ended
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
      }
      load_rows(mine, from + part * 16 * PITCH_A * 2, s0, place);
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int s = 0; s < AT_ONCE; s++)
        if (s0 + s < STEPS) product(sums[part], mine[s], filter + (u64)((s0 + s) * (STEP_BYTES / 16)), s0 + s > 0);
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    }
    if (STAGES > 1 && slab != first) { // while products run, the stage before is filled again
      free_stage(lane);
#if RESIDUAL
      load_stage(memory, ring, barriers, now == 0 ? STAGES - 1 : now - 1, a, residual, slab + (STAGES - 1) * stride, rows,
                 lane);
#else
      load_stage(memory, ring, barriers, now == 0 ? STAGES - 1 : now - 1, a, slab + (STAGES - 1) * stride, rows, lane);
#endif
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    __syncwarp(); // all lanes have read
#pragma unroll
    for (int i = 0; i < PARTS; i++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        Out *const row = (Out *)staged + (i * 16 + h * HALF_STEP + group * ROW_STEP) * PITCH_OUT;
#pragma unroll
        for (int tile = 0; tile < TILES; tile += SPREAD_N) {
          const int length = RunsN::length(tile), column = RunsN::element(tile, place);
#if RESIDUAL
          Pack<Out, 2> v[SPREAD_N] = {};
          if (h == 0) load_added<false>(v, row + column, length, N - column);
          else load_added<ODD_OUT>(v, row + column, length, N - column);
#else
          Pack<Out, 2> v[SPREAD_N];
#endif
#pragma unroll
          for (int t = 0; t < SPREAD_N; t++) {
            if (t >= length) continue;
            float x[2];
#pragma unroll
            for (int e = 0; e < 2; e++) {
              x[e] = sums[i][(tile + t) * 4 + h * 2 + e];
              if constexpr (SCALED) x[e] *= factor;
              if constexpr (BIAS) x[e] += biases[column + t * 2 + e];
#if RESIDUAL
              x[e] += widened(v[t].v[e]);
#endif
              x[e] = activate(x[e]);
            }
            v[t] = narrowed(Out(), x[0], x[1]);
          }
          if (h == 0) store_run<false>(row + column, v, length, N - column);
          else store_run<ODD_OUT>(row + column, v, length, N - column);
        }
      }
    if (PAD_OUT) {
      __syncwarp();
      store_slab<N, PAD_OUT, 4>(out, staged, slab, rows, lane);
    } else {
      ts_async_fence();
      __syncwarp();
      store_piece<N>(out, memory, ring + now * STAGE, slab, rows, lane);
    }
    __syncwarp();
    if (STAGES == 1) {
      free_stage(lane);
#if RESIDUAL
      load_stage(memory, ring, barriers, 0, a, residual, slab + stride, rows, lane);
#else
      load_stage(memory, ring, barriers, 0, a, slab + stride, rows, lane);
#endif
    }
    if (++now == STAGES) now = 0, phase ^= 1;
  }
#if RESIDUAL
  if (PAD_A || PAD_OUT) copy_wait<0>();
#else
  if (PAD_A) copy_wait<0>();
#endif
  if (!PAD_OUT && lane == 0) ts_store_wait();
}
} // namespace @SYM@_scope
} // namespace ts_mma
