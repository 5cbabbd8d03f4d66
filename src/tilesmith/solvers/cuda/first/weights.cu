// Backward weights of few input channels: sums over pixels, 16 a product. dy is transposed as it is loaded; of x a lane
// reads the units of four pixels, and exchanges their elements, so that any stride and dilation reads whole units. A unit's
// element has its own columns.
constexpr int COLUMNS = GROUPS * ELEMENTS, PIXELS = TILE_H * TILE_W, STEPS = PIXELS / 16;
constexpr int DY_PITCH = PARTS * 32 + 16, DY_TILE = (PIXELS * DY_PITCH + 127) / 128 * 128;
constexpr int SPLITS = WARPS / UNIT_WARPS, TURNS = (STEPS + SPLITS - 1) / SPLITS;
constexpr int ADDED = SPLITS > 1 ? UNIT_WARPS * PARTS * COLUMNS * 512 : 0;
static_assert((2 * (TILE + DY_TILE) > ADDED ? 2 * (TILE + DY_TILE) : ADDED) == SHARED_BYTES, "two tiles, or sums");

// The tile of dy, the block's channels of it; zeros beyond the image.
TS_MMA_DEVICE void fetch_dy(const Run &run, int tile, u32 to, unsigned char *memory, int channel) {
  constexpr int CHUNKS = PARTS * 16 / DY_VECTOR;
  const Tile t = tile_of(run, tile);
  const Element *const image = run.dy + ((i64)t.n * run.y_n + (i64)t.d * run.y_d);
#pragma unroll 4
  for (int i = threadIdx.x; i < PIXELS * CHUNKS; i += THREADS) {
    const int at = i % CHUNKS * DY_VECTOR, pixel = i / CHUNKS, h = t.h + pixel / TILE_W, w = t.w + pixel % TILE_W;
    const bool inside = h < run.out_h && w < run.out_w && channel + at < run.rows;
    const Element *const from = image + ((i64)h * run.y_h + (i64)w * run.y_w + channel + at);
    const u32 place = to + pixel * DY_PITCH + at * 2;
    if constexpr (DY_VECTOR > 1)
      copy_async<DY_VECTOR * 2>(place, inside ? from : run.dy, inside ? DY_VECTOR * 2 : 0);
    else
      *(Element *)(memory + place) = inside ? *from : Element();
  }
}

typedef Pack<float, 4> Quad;
TS_MMA_DEVICE Quad quad(const float (&v)[4]) { return {{v[0], v[1], v[2], v[3]}}; }

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) @SYM@(TS_PARAMETERS) {
  extern __shared__ __align__(128) unsigned char memory[];
  const Run run = TS_RUN;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, place = lane % 4;
  const int channel = blockIdx.x % run.blocks_m * PARTS * 16, slice = blockIdx.x / run.blocks_m;
  const int stride = gridDim.x / run.blocks_m, split = warp / UNIT_WARPS, mine = warp % UNIT_WARPS;
  const u32 start = DY_VECTOR > 1 ? shared_address(memory) : 0;
  int at[GROUPS];
#pragma unroll
  for (int u = 0; u < GROUPS; u++) at[u] = (int)unit_offsets[(mine * GROUPS + u) * 8 + group];
  const int row = (lane / 16 * 8 + lane % 8) * DY_PITCH + lane / 8 % 2 * 16;
  float sums[PARTS][COLUMNS][4];
#pragma unroll
  for (int i = 0; i < PARTS; i++)
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) sums[i][j][e] = 0.0f;
  launch_next();
  wait_previous();
  const Places places = places_of(run);
  Pack<Element, 4> units[LOADS];
  // The loop fetches the first tile as well: such long texts are there once.
#pragma unroll 1
  for (int now = 1, tile = slice - stride; tile < run.tiles; tile += stride, now ^= 1) {
    const bool more = tile + stride < run.tiles;
    if (more) {
      fetch_dy(run, tile + stride, start + 2 * TILE + (now ^ 1) * DY_TILE, memory, channel);
      fetch(run, places, tile + stride, units);
    }
    copy_commit();
    const Tile t = tile_of(run, tile);
    const unsigned char *const x = memory + now * TILE;
    const u32 dy = shared_address(memory) + 2 * TILE + now * DY_TILE + row;
    if (tile >= 0) // the first tile is there
#pragma unroll UNROLL
    for (int turn = 0; turn < TURNS; turn++) {
      const int step = turn * SPLITS + split;
      if (STEPS % SPLITS && step >= STEPS) break;
      u32 a[PARTS][4];
#pragma unroll
      for (int i = 0; i < PARTS; i++) load_tiles<true>(a[i], dy + step * 16 * DY_PITCH + i * 32);
#pragma unroll
      for (int u = 0; u < GROUPS; u++) {
        Pack<u32, 2> v[4];
#pragma unroll
        for (int p = 0; p < 4; p++) {
          const int in_step = place * 2 + p % 2 + p / 2 * 8, pixel = step * 16 + in_step;
          // Pixels of a step lie in a row where rows are so long.
          const int from = TILE_W % 16 ? place_of(pixel) : place_of(step * 16) + in_step * STRIDE_W * PER_PIXEL * 8;
          v[p] = *(const Pack<u32, 2> *)(x + from + at[u]);
          if constexpr (RAGGED) {
            // Where no result is, x may be no number: it must not meet the zeros of dy.
            if (t.h + pixel / TILE_W >= run.out_h || t.w + pixel % TILE_W >= run.out_w) v[p] = Pack<u32, 2>();
          }
        }
#pragma unroll
        for (int e = 0; e < ELEMENTS; e++) {
          const u32 order = e % 2 ? 0x7632 : 0x5410;
          const u32 b0 = __byte_perm(v[0].v[e / 2], v[1].v[e / 2], order);
          const u32 b1 = __byte_perm(v[2].v[e / 2], v[3].v[e / 2], order);
#pragma unroll
          for (int i = 0; i < PARTS; i++) multiply(Element(), sums[i][u * ELEMENTS + e], a[i], b0, b1);
        }
      }
    }
    if (more) put(memory + (now ^ 1) * TILE, units);
    copy_wait<0>();
    __syncthreads();
  }
  // Warps that share units add their sums, always in the same order.
#pragma unroll 1
  for (int other = 1; other < SPLITS; other++) {
    if (split == other) {
#pragma unroll
      for (int i = 0; i < PARTS; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++)
          ((Quad *)memory)[((mine * PARTS + i) * COLUMNS + j) * 32 + lane] = quad(sums[i][j]);
    }
    __syncthreads();
    if (split == 0) {
#pragma unroll
      for (int i = 0; i < PARTS; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
          const Quad v = ((const Quad *)memory)[((mine * PARTS + i) * COLUMNS + j) * 32 + lane];
#pragma unroll
          for (int e = 0; e < 4; e++) sums[i][j][e] += v.v[e];
        }
    }
    __syncthreads();
  }
  if (split) return;
  Quad *const to = (Quad *)run.partial + (i64)blockIdx.x * UNIT_WARPS * PARTS * COLUMNS * 32;
#pragma unroll
  for (int i = 0; i < PARTS; i++)
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) to[((mine * PARTS + i) * COLUMNS + j) * 32 + lane] = quad(sums[i][j]);
}
