// Backward weights of few input channels: sums over pixels, 16 a product. Rows of a product are two elements of each of
// eight words of a run: lanes read the words of four pixels and exchange their halves. dy is transposed as it is loaded.
// Pixels whose runs begin at even and at odd elements (VARIANTS) have warps of their own.
constexpr int GROUPS_V = (MATRICES + GROUP - 1) / GROUP; // warps that together have a variant's words
constexpr int UNIT_WARPS = VARIANTS * GROUPS_V, SPLITS = WARPS / UNIT_WARPS;
constexpr int CHANNELS = TILES_N * 8, DY_PITCH = (TILES_N | 1) * 16; // eight pixels lie in different banks
constexpr int PIXELS = TILE_H * TILE_W, DY = PIXELS * DY_PITCH, STAGE = (WINDOW + DY + 16 + 127) / 128 * 128;
constexpr int STEPS_W = TILE_W / (16 * VARIANTS), STEPS = TILE_H * STEPS_W; // of a variant
// Neighbouring words are two elements apart: with this pitch the four of a half-warp lie in different banks.
constexpr int QUADS = CHANNELS / 4, SUM_PITCH = CHANNELS + 4, SUMS = ELEMENTS * SUM_PITCH * 4;
static_assert((2 * STAGE > SUMS ? 2 * STAGE : SUMS) == SHARED_BYTES, "two tiles, or sums");
static_assert(TILE_W % (16 * VARIANTS) == 0 && WARPS % UNIT_WARPS == 0, "whole steps");

// The tile of dy, the block's channels of it, in each row the pixels of a variant side by side; zeros beyond the image.
TS_MMA_DEVICE void load_dy(const Run &run, const Tile &t, u32 to, unsigned char *memory, int channel) {
  constexpr int CHUNKS = CHANNELS / DY_VECTOR;
  const Element *const image = run.dy + ((i64)t.n * run.y_n + (i64)t.d * run.y_d + channel);
#pragma unroll 4
  for (int i = threadIdx.x; i < PIXELS * CHUNKS; i += THREADS) {
    const int at = i % CHUNKS * DY_VECTOR, pixel = i / CHUNKS, row = pixel / TILE_W, column = pixel % TILE_W;
    const int h = t.h + row, w = t.w + column;
    const bool inside = h < run.out_h && w < run.out_w && channel + at < run.rows;
    const Element *const from = image + (inside ? h * run.y_h + w * run.y_w + at : 0);
    const int place = row * TILE_W + column % VARIANTS * (TILE_W / VARIANTS) + column / VARIANTS;
    if constexpr (DY_VECTOR > 1)
      copy_async<DY_VECTOR * 2>(to + place * DY_PITCH + at * 2, from, inside ? DY_VECTOR * 2 : 0);
    else
      *(Element *)(memory + place * DY_PITCH + at * 2) = inside ? *from : Element();
  }
}

TS_MMA_DEVICE Tile tile_of(const Run &run, int tile) {
  const int row = (u32)tile / (u32)run.tiles_w, plane = (u32)row / (u32)run.tiles_h, n = (u32)plane / (u32)run.out_d;
  return {n, plane - n * run.out_d, (row - plane * run.tiles_h) * TILE_H, (tile - row * run.tiles_w) * TILE_W};
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) @SYM@(TS_PARAMETERS) {
  extern __shared__ __align__(128) unsigned char memory[];
  const Run run = TS_RUN;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, place = lane % 4;
  const int channel = blockIdx.x % BLOCKS_M * CHANNELS, slice = blockIdx.x / BLOCKS_M;
  const int slices = gridDim.x / BLOCKS_M, split = warp / UNIT_WARPS, unit = warp % UNIT_WARPS;
  const int variant = unit / GROUPS_V, first = unit % GROUPS_V * GROUP;
  const u32 start = shared_address(memory);
  // The lane's words; those of a matrix that is not there are the last one's.
  int words[GROUP];
#pragma unroll
  for (int m = 0; m < GROUP; m++) {
    const int matrix = first + m < MATRICES ? first + m : MATRICES - 1;
    words[m] = (int)word_offsets[(variant * MATRICES + matrix) * 8 + group];
  }
  const int even = (SHIFT + variant * STEP) / 2 * 4 + place * 2 * (VARIANTS * STEP * 2);
  const u32 dy_row = (lane % 16) * DY_PITCH + lane / 16 * 16 + variant * (TILE_W / VARIANTS * DY_PITCH);
  float sums[GROUP][TILES_N][4];
#pragma unroll
  for (int m = 0; m < GROUP; m++)
#pragma unroll
    for (int j = 0; j < TILES_N; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) sums[m][j][e] = 0.0f;
  launch_next();
  wait_previous();
  // The loop fetches the first tile as well: such long texts are there once.
#pragma unroll 1
  for (int tile = slice - slices, now = 1; tile < run.tiles; tile += slices, now ^= 1) {
    if (tile + slices < run.tiles) {
      const Tile t = tile_of(run, tile + slices);
      load_window(run, start + (now ^ 1) * STAGE, t);
      load_dy(run, t, start + (now ^ 1) * STAGE + WINDOW, memory + (now ^ 1) * STAGE + WINDOW, channel);
    }
    copy_commit();
    if (tile < 0) continue;
    copy_wait<1>();
    __syncthreads();
    const Tile t = tile_of(run, tile);
    const unsigned char *const x = memory + now * STAGE + even;
    const u32 dy = start + now * STAGE + WINDOW + dy_row;
#pragma unroll UNROLL
    for (int step = split; step < STEPS; step += SPLITS) {
      const int row = step / STEPS_W, in_row = step % STEPS_W * 16; // of a variant's pixels
      if (RAGGED && t.h + row >= run.out_h) break;
      u32 b[(TILES_N + 1) / 2][4];
#pragma unroll
      for (int j = 0; j < (TILES_N + 1) / 2; j++)
        load_tiles<true>(b[j], dy + (row * TILE_W + in_row) * DY_PITCH + j * 32);
      const unsigned char *const line = x + row * (STRIDE_H * PITCH) + in_row * (VARIANTS * STEP * 2);
#pragma unroll
      for (int m = 0; m < GROUP; m++) {
        u32 v[4];
#pragma unroll
        for (int p = 0; p < 4; p++) {
          const int away = p % 2 + p / 2 * 8;
          v[p] = *(const u32 *)(line + words[m] + away * (VARIANTS * STEP * 2));
          if constexpr (RAGGED) {
            // Where no result is, x may be no number: it must not meet the zeros of dy.
            if (t.w + (in_row + place * 2 + away) * VARIANTS + variant >= run.out_w) v[p] = 0;
          }
        }
        const u32 a[4] = {
            __byte_perm(v[0], v[1], 0x5410), __byte_perm(v[0], v[1], 0x7632), __byte_perm(v[2], v[3], 0x5410),
            __byte_perm(v[2], v[3], 0x7632)};
#pragma unroll
        for (int j = 0; j < TILES_N; j++)
          multiply(Element(), sums[m][j], a, b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
      }
    }
    __syncthreads();
  }
  copy_wait<0>();
  // Warps add their sums by elements, always in the same order.
  float *const all = (float *)memory;
#pragma unroll 1
  for (int round = 0; round < VARIANTS * SPLITS; round++) {
    if (variant == round % VARIANTS && split == round / VARIANTS) {
#pragma unroll
      for (int m = 0; m < GROUP; m++) {
        if (first + m >= MATRICES) continue;
        const u32 word = word_elements[(variant * MATRICES + first + m) * 8 + group];
#pragma unroll
        for (int half = 0; half < 2; half++) {
          if (!(word >> (30 + half) & 1)) continue;
          float *const line = all + ((word & 0xffffff) + half - 1) * SUM_PITCH + place * 2;
#pragma unroll
          for (int j = 0; j < TILES_N; j++) {
            Pack<float, 2> &to = *(Pack<float, 2> *)(line + j * 8);
            const float low = sums[m][j][half * 2], high = sums[m][j][half * 2 + 1];
            to = round ? Pack<float, 2>{{to.v[0] + low, to.v[1] + high}} : Pack<float, 2>{{low, high}};
          }
        }
      }
    }
    __syncthreads();
  }
  typedef Pack<float, 4> Quad;
  Quad *const to = (Quad *)run.partial + (i64)blockIdx.x * (ELEMENTS * QUADS);
  for (int i = threadIdx.x; i < ELEMENTS * QUADS; i += THREADS)
    to[i] = ((const Quad *)memory)[i / QUADS * (SUM_PITCH / 4) + i % QUADS];
}
