namespace ts_mma {
namespace @SYM@_scope {
@HEADER@
constexpr int STEPS = (K + 15) / 16, TILES = (N + 7) / 8, PARTS = SLAB / 16;
// Columns of the filter, so far apart that eight of them lie in different banks.
constexpr int FILTER_PITCH = STEPS % 2 ? 16 * STEPS : 16 * STEPS + 16;
constexpr int FILTER = TILES * 8 * FILTER_PITCH * 2, BIASES = (TILES * 8 * 4 + 127) / 128 * 128;
constexpr int RING = FILTER + BIASES;
static_assert(STAGE == bytes_of_slab<Element, K, PAD_A>(), "a stage is a slab");
constexpr int STAGED = RING + WARPS * STAGES * STAGE + 128; // reads go beyond a row, as far as whole products do
static_assert(STAGED + WARPS * bytes_of_slab<Out, N, PAD_OUT>() == SHARED_BYTES, "slabs of results lie at the end");
constexpr int HELD_STEPS = HELD ? STEPS : 1, HELD_TILES = HELD ? TILES : 1;

// A product's rows are any 16 rows, the same in sums: where widths are odd, a lane takes an even row and the next.
constexpr bool NEXT = K % 2 != 0;
constexpr int GROUP_STEP = NEXT ? 2 : 1, HALF_STEP = NEXT ? 1 : 8;

// Two neighbouring pairs of elements.
template <bool ODD> TS_MMA_DEVICE void load_pairs(const unsigned char *from, u32 &low, u32 &high) {
  if constexpr ((K + PAD_A) % 4 == 0) {
    const Pack<u32, 2> v = *(const Pack<u32, 2> *)from;
    low = v.v[0], high = v.v[1];
  } else if constexpr (!ODD) {
    low = *(const u32 *)from, high = *(const u32 *)(from + 4);
  } else {
    const u32 *const words = (const u32 *)(from - 2);
    const u32 a = words[0], b = words[1], c = words[2];
    low = __funnelshift_r(a, b, 16), high = __funnelshift_r(b, c, 16);
  }
}

// Every warp takes slabs of rows through a ring of its own, and waits for no other warp.
extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) @SYM@(TS_PARAMETERS) {
  extern __shared__ __align__(128) unsigned char memory[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, place = lane % 4;
  const i64 slabs = (rows + SLAB - 1) / SLAB, stride = (i64)gridDim.x * WARPS;
  const i64 first = (i64)blockIdx.x * WARPS + warp;
  const int stages = RING + warp * STAGES * STAGE;
  wait_previous();
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++) {
    load_slab<32, K, PAD_A>(memory, stages + s * STAGE, a, first + s * stride, rows, lane);
    copy_commit();
  }
  for (int i = threadIdx.x; i < TILES * 8 * STEPS * 16; i += WARPS * 32) {
    const int n = i / (STEPS * 16), k = i % (STEPS * 16);
    Element v = {};
    if (n < N && k < K) v = b[k * b_row + n * b_column];
    *(Element *)(memory + (n * FILTER_PITCH + k) * 2) = v;
  }
  float *const biases = (float *)(memory + FILTER);
  for (int i = threadIdx.x; BIAS && i < TILES * 8; i += WARPS * 32) biases[i] = i < N ? widened(bias[i]) : 0.0f;
  __syncthreads();

  // A product's k are any 16 elements, the same in both operands: a lane takes four neighbours.
  const unsigned char *const columns = memory + group * FILTER_PITCH * 2 + place * 8;
  Pack<u32, 2> held[HELD_STEPS][HELD_TILES];
  if constexpr (HELD) {
#pragma unroll
    for (int s = 0; s < STEPS; s++)
#pragma unroll
      for (int j = 0; j < TILES; j++) held[s][j] = *(const Pack<u32, 2> *)(columns + j * 8 * FILTER_PITCH * 2 + s * 32);
  }
  // What lies beyond a row's end is the next row's: it must not meet the filter's zeros, for it may be no number.
  constexpr int LAST = (STEPS - 1) * 16;
  const int left = K - LAST - place * 4;
  const u32 keep_low = left >= 2 ? ~0u : left == 1 ? 0xffffu : 0u;
  const u32 keep_high = left >= 4 ? ~0u : left == 3 ? 0xffffu : 0u;
  unsigned char *const staged = memory + STAGED + warp * bytes_of_slab<Out, N, PAD_OUT>();
  const float factor = (float)alpha;

  int now = 0;
#pragma unroll 1
  for (i64 slab = first; slab < slabs; slab += stride) {
    const int ahead = now == 0 ? STAGES - 1 : now - 1;
    load_slab<32, K, PAD_A>(memory, stages + ahead * STAGE, a, slab + (STAGES - 1) * stride, rows, lane);
    copy_commit();
    copy_wait<STAGES - 1>();
    __syncwarp();
    float sums[PARTS][TILES][4] = {};
    const unsigned char *const from =
        memory + stages + now * STAGE + (group * GROUP_STEP * (K + PAD_A) + place * 4) * 2;
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
      u32 f[PARTS][4];
#pragma unroll
      for (int i = 0; i < PARTS; i++) {
        const unsigned char *const at = from + (i * 16 * (K + PAD_A) + s * 16) * 2;
        load_pairs<false>(at, f[i][0], f[i][2]);
        load_pairs<NEXT>(at + HALF_STEP * (K + PAD_A) * 2, f[i][1], f[i][3]);
        if constexpr (K % 16 != 0) {
          if (s == STEPS - 1) f[i][0] &= keep_low, f[i][1] &= keep_low, f[i][2] &= keep_high, f[i][3] &= keep_high;
        }
      }
#pragma unroll
      for (int j = 0; j < TILES; j++) {
        Pack<u32, 2> v;
        if constexpr (HELD)
          v = held[s][j];
        else
          v = *(const Pack<u32, 2> *)(columns + j * 8 * FILTER_PITCH * 2 + s * 32);
#pragma unroll
        for (int i = 0; i < PARTS; i++) multiply(Element(), sums[i][j], f[i], v.v[0], v.v[1]);
      }
    }
    now = now + 1 == STAGES ? 0 : now + 1;
#pragma unroll
    for (int i = 0; i < PARTS; i++)
#pragma unroll
      for (int j = 0; j < TILES; j++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const int column = j * 8 + place * 2;
          float x[2];
#pragma unroll
          for (int e = 0; e < 2; e++) {
            x[e] = sums[i][j][h * 2 + e];
            if constexpr (SCALED) x[e] *= factor;
            if constexpr (BIAS) x[e] += biases[column + e];
            x[e] = activate(x[e]);
          }
          const Pack<Out, 2> v = narrowed(Out(), x[0], x[1]);
          Out *const to = (Out *)staged + (i * 16 + h * HALF_STEP + group * GROUP_STEP) * (N + PAD_OUT) + column;
          const bool even = N % 2 == 0 || (NEXT && h == 0);
          if (even && column + 1 < N) {
            *(Pack<Out, 2> *)to = v;
          } else {
            if (column < N) to[0] = v.v[0];
            if (column + 1 < N) to[1] = v.v[1];
          }
        }
    __syncwarp();
    store_slab<N, PAD_OUT>(out, staged, slab, rows, lane);
    __syncwarp();
  }
  copy_wait<0>();
}
} // namespace @SYM@_scope
} // namespace ts_mma
