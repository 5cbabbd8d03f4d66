namespace ts_mma {
namespace @SYM@_scope {
@HEADER@
constexpr int STAGE_A = bytes_of_slab<Element, M, PAD_A>(), STAGE_B = bytes_of_slab<Element, N, PAD_B>();
static_assert(STAGE == STAGE_A + STAGE_B, "a stage is a slab of each operand");
// A tile's sums, in the order of a warp's registers.
constexpr int SUMS = TILES_M * TILES_N * 4;

// A product's k are any 16 rows: a lane takes two that are ROW_STEP apart, and two HALF_STEP below. Its columns are
// any, too. With RUNS they are a run of neighbouring ones, of all tiles in pairs, and read in words; else elements of
// odd rows, and pairs of neighbouring elements of even ones: those of a tile's two halves, or of two tiles.
constexpr int PITCH_A = M + PAD_A, PITCH_B = N + PAD_B;
constexpr bool PAIRS_A = PITCH_A % 2 == 0, PAIRS_B = PITCH_B % 2 == 0 && TILES_N % 2 == 0;

// Two elements that are STEP apart as one word, the first in its lower half.
template <int STEP> TS_MMA_DEVICE u32 two_rows(const unsigned char *from) {
  return *(const u16 *)from | (u32) * (const u16 *)(from + STEP * 2) << 16;
}

// The words of a run in a lane's row ROW. Lanes begin at even rows, so whether a row begins inside a word is known.
template <int PITCH, int RUN, int ROW>
TS_MMA_DEVICE void load_run(u32 (&word)[RUN / 2 + 1], const unsigned char *lane) {
  constexpr int ODD = ROW * PITCH % 2;
  constexpr int EACH = PITCH % 8 == 0 && RUN / 2 * 2 % 8 == 0 ? 4 : PITCH % 4 == 0 && RUN / 2 * 2 % 4 == 0 ? 2 : 1;
  const unsigned char *const from = lane + (ROW * PITCH - ODD) * 2;
#pragma unroll
  for (int i = 0; i < RUN / 2 + ODD; i += EACH) {
    const Pack<u32, EACH> v = *(const Pack<u32, EACH> *)(from + i * 4);
#pragma unroll
    for (int e = 0; e < EACH; e++) word[i + e] = v.v[e];
  }
}
// The elements of a run as pairs of two rows, the first row's in the lower halves.
template <int PITCH, int RUN, int ROW> TS_MMA_DEVICE void pairs_of_run(u32 (&to)[RUN], const unsigned char *lane) {
  u32 first[RUN / 2 + 1], second[RUN / 2 + 1];
  load_run<PITCH, RUN, ROW>(first, lane);
  load_run<PITCH, RUN, ROW + ROW_STEP>(second, lane);
#pragma unroll
  for (int e = 0; e < RUN / 2 * 2; e++) {
    const int x = e + ROW * PITCH % 2, y = e + (ROW + ROW_STEP) * PITCH % 2;
    to[e] = __byte_perm(first[x / 2], second[y / 2], (y % 2 ? 0x7600 : 0x5400) | (x % 2 ? 0x32 : 0x10));
  }
}
template <int ROW>
TS_MMA_DEVICE void operands(u32 (&fa)[TILES_M * 2], u32 (&fb)[TILES_N], const unsigned char *at_a,
                            const unsigned char *at_b, const unsigned char *at_last) {
  pairs_of_run<PITCH_A, TILES_M * 2, ROW>(fa, at_a);
  if constexpr (TILES_N > 1) pairs_of_run<PITCH_B, TILES_N, ROW>(fb, at_b);
  if constexpr (TILES_N % 2) fb[TILES_N - 1] = two_rows<ROW_STEP * PITCH_B>(at_last + ROW * PITCH_B * 2);
}
template <int PART>
TS_MMA_DEVICE void multiply_parts(float (&sums)[TILES_M][TILES_N][4], const unsigned char *at_a,
                                  const unsigned char *at_b, const unsigned char *at_last) {
  u32 fa[2][TILES_M * 2], fb[2][TILES_N];
  operands<PART * 16>(fa[0], fb[0], at_a, at_b, at_last);
  operands<PART * 16 + HALF_STEP>(fa[1], fb[1], at_a, at_b, at_last);
#pragma unroll
  for (int i = 0; i < TILES_M; i++) {
    const u32 of[4] = {fa[0][i * 2], fa[0][i * 2 + 1], fa[1][i * 2], fa[1][i * 2 + 1]};
#pragma unroll
    for (int j = 0; j < TILES_N; j++) multiply(Element(), sums[i][j], of, fb[0][j], fb[1][j]);
  }
  if constexpr (PART + 1 < SLAB / 16) multiply_parts<PART + 1>(sums, at_a, at_b, at_last);
}

// A matrix of a single part: every warp sums over slabs of rows of its own, and its block adds the warps' sums. Else
// the warps of a block have a part each and share the slabs. Another kernel adds the blocks' sums.
constexpr bool SHARED = PARTS > 1;
constexpr int READERS = SHARED ? WARPS * 32 : 32;
static_assert(!SHARED || PARTS == WARPS, "a warp for each part");
static_assert((SHARED ? 1 : WARPS) * STAGES * STAGE < SHARED_BYTES, "reads go beyond the rings");

TS_MMA_DEVICE void meet() {
  if constexpr (SHARED)
    __syncthreads();
  else
    __syncwarp();
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, MIN_BLOCKS) @SYM@(TS_PARAMETERS) {
  extern __shared__ __align__(128) unsigned char memory[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, place = lane % 4;
  const int m0 = SHARED ? warp % PARTS_M * TILES_M * 16 : 0, n0 = SHARED ? warp / PARTS_M * TILES_N * 8 : 0;
  const i64 slabs = (rows + SLAB - 1) / SLAB, stride = SHARED ? gridDim.x : (i64)gridDim.x * WARPS;
  const i64 first = SHARED ? blockIdx.x : (i64)blockIdx.x * WARPS + warp;
  const int stages = SHARED ? 0 : warp * STAGES * STAGE;
  const auto load = [&](int stage, i64 slab) {
    const int reader = SHARED ? threadIdx.x : lane;
    load_slab<READERS, M, PAD_A>(memory, stages + stage * STAGE, a, slab, rows, reader);
    load_slab<READERS, N, PAD_B>(memory, stages + stage * STAGE + STAGE_A, b, slab, rows, reader);
    copy_commit();
  };
  wait_previous();
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++) load(s, first + s * stride);
  float sums[TILES_M][TILES_N][4] = {};
  const int row = place * LANE_STEP;
  const unsigned char *at_a, *at_b, *at_last;
  if constexpr (RUNS) {
    const unsigned char *const of_b = memory + stages + STAGE_A + (row * PITCH_B + n0) * 2;
    at_a = memory + stages + (row * PITCH_A + m0 + group * TILES_M * 2) * 2;
    at_b = of_b + group * (TILES_N / 2 * 4);
    at_last = of_b + (TILES_N / 2 * 16 + group) * 2;
  } else {
    at_a = memory + stages + (row * PITCH_A + m0 + group * (PAIRS_A ? 2 : 1)) * 2;
    at_b = memory + stages + STAGE_A + (row * PITCH_B + n0 + group * (PAIRS_B ? 2 : 1)) * 2;
    at_last = at_b;
  }
  int now = 0;
#pragma unroll 1
  for (i64 slab = first; slab < slabs; slab += stride) {
    load(now == 0 ? STAGES - 1 : now - 1, slab + (STAGES - 1) * stride);
    copy_wait<STAGES - 1>();
    meet();
    if constexpr (RUNS) {
      multiply_parts<0>(sums, at_a + now * STAGE, at_b + now * STAGE, at_last + now * STAGE);
    } else {
#pragma unroll
      for (int s = 0; s < SLAB / 16; s++) {
        const unsigned char *const from_a = at_a + now * STAGE + s * 16 * PITCH_A * 2;
        const unsigned char *const from_b = at_b + now * STAGE + s * 16 * PITCH_B * 2;
        u32 fb[TILES_N][2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const unsigned char *const at = from_b + h * HALF_STEP * PITCH_B * 2;
#pragma unroll
          for (int j = 0; j < TILES_N; j++) {
            if constexpr (PAIRS_B) {
              if (j % 2) continue;
              const u32 x = *(const u32 *)(at + j * 16), y = *(const u32 *)(at + j * 16 + ROW_STEP * PITCH_B * 2);
              fb[j][h] = __byte_perm(x, y, 0x5410), fb[j + 1 < TILES_N ? j + 1 : j][h] = __byte_perm(x, y, 0x7632);
            } else {
              fb[j][h] = two_rows<ROW_STEP * PITCH_B>(at + j * 16);
            }
          }
        }
#pragma unroll
        for (int i = 0; i < TILES_M; i++) {
          u32 fa[4];
#pragma unroll
          for (int h = 0; h < 2; h++) {
            const unsigned char *const at = from_a + i * 32 + h * HALF_STEP * PITCH_A * 2;
            if constexpr (PAIRS_A) {
              const u32 x = *(const u32 *)at, y = *(const u32 *)(at + ROW_STEP * PITCH_A * 2);
              fa[h * 2] = __byte_perm(x, y, 0x5410), fa[h * 2 + 1] = __byte_perm(x, y, 0x7632);
            } else {
              fa[h * 2] = two_rows<ROW_STEP * PITCH_A>(at), fa[h * 2 + 1] = two_rows<ROW_STEP * PITCH_A>(at + 16);
            }
          }
#pragma unroll
          for (int j = 0; j < TILES_N; j++) multiply(Element(), sums[i][j], fa, fb[j][0], fb[j][1]);
        }
      }
    }
    now = now + 1 == STAGES ? 0 : now + 1;
    meet();
  }
  copy_wait<0>();
  if constexpr (SHARED) {
    float *const to = partial + ((i64)blockIdx.x * PARTS + warp) * (SUMS * 32);
#pragma unroll
    for (int i = 0; i < SUMS; i++) to[i * 32 + lane] = sums[i / 4 / TILES_N][i / 4 % TILES_N][i % 4];
  } else {
    __syncthreads(); // the rings are free
    float *const shared = (float *)memory;
#pragma unroll
    for (int i = 0; i < SUMS; i++)
      shared[(warp * SUMS + i) * 32 + lane] = sums[i / 4 / TILES_N][i / 4 % TILES_N][i % 4];
    __syncthreads();
    for (int i = threadIdx.x; i < SUMS * 32; i += WARPS * 32) {
      float sum = shared[i];
#pragma unroll
      for (int w = 1; w < WARPS; w++) sum += shared[w * SUMS * 32 + i];
      partial[(i64)blockIdx.x * (SUMS * 32) + i] = sum;
    }
  }
}
} // namespace @SYM@_scope
} // namespace ts_mma
