namespace ts_mma {
namespace @SYM@_scope {
@HEADER@
constexpr int STAGE_A = bytes_of_slab<Element, M, PAD_A>(), STAGE_B = bytes_of_slab<Element, N, PAD_B>();
static_assert(STAGE == STAGE_A + STAGE_B, "a stage is a slab of each operand");
// A tile's sums, in the order of a warp's registers.
constexpr int SUMS = TILES_M * TILES_N * 4;

// Two elements that are STEP apart as one word, the first in its lower half.
template <int STEP> TS_MMA_DEVICE u32 two_rows(const unsigned char *from) {
  return *(const u16 *)from | (u32) * (const u16 *)(from + STEP * 2) << 16;
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
  // A product's k are any 16 rows: a lane takes four that are ROW_STEP apart. Where rows are even, it takes pairs of
  // neighbouring elements: those of a tile's two halves, or of two tiles.
  constexpr int PITCH_A = M + PAD_A, PITCH_B = N + PAD_B;
  constexpr bool PAIRS_A = PITCH_A % 2 == 0, PAIRS_B = PITCH_B % 2 == 0 && TILES_N % 2 == 0;
  const int row = place * LANE_STEP;
  const unsigned char *const at_a = memory + stages + (row * PITCH_A + m0 + group * (PAIRS_A ? 2 : 1)) * 2;
  const unsigned char *const at_b = memory + stages + STAGE_A + (row * PITCH_B + n0 + group * (PAIRS_B ? 2 : 1)) * 2;
  int now = 0;
#pragma unroll 1
  for (i64 slab = first; slab < slabs; slab += stride) {
    load(now == 0 ? STAGES - 1 : now - 1, slab + (STAGES - 1) * stride);
    copy_wait<STAGES - 1>();
    meet();
#pragma unroll
    for (int s = 0; s < SLAB / 16; s++) {
      const unsigned char *const from_a = at_a + now * STAGE + s * 16 * PITCH_A * 2;
      const unsigned char *const from_b = at_b + now * STAGE + s * 16 * PITCH_B * 2;
      u32 fb[TILES_N][2];
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const unsigned char *const at = from_b + h * 2 * ROW_STEP * PITCH_B * 2;
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
          const unsigned char *const at = from_a + i * 32 + h * 2 * ROW_STEP * PITCH_A * 2;
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
