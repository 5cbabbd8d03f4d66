// A tile of x in shared memory as units of four elements: a pixel whose channels are padded, or several neighbouring taps
// of pixels with one or two channels.
constexpr int THREADS = WARPS * 32, PITCH = IN_W * PER_PIXEL, TILE_UNITS = IN_D * IN_H * PITCH;
constexpr int LOADS = (TILE_UNITS + THREADS - 1) / THREADS, TILE = (TILE_UNITS * 8 + 127) / 128 * 128;

// A tile's image and its first result.
struct Tile {
  int n, d, h, w;
};
TS_MMA_DEVICE Tile tile_of(const Run &run, int tile) {
  const int row = (u32)tile / (u32)run.tiles_w, plane = (u32)row / (u32)run.tiles_h, n = (u32)plane / (u32)run.out_d;
  return {n, plane - n * run.out_d, (row - plane * run.tiles_h) * TILE_H, (tile - row * run.tiles_w) * TILE_W};
}

// Where the thread's units lie: elements from the tile's first one, and their plane, row and column in the tile.
struct Places {
  int from[LOADS];
  u32 at[LOADS];
};
static_assert(IN_W < 4096 && LOADS * THREADS / IN_W < 4096 && IN_D < 256, "places are packed");
TS_MMA_DEVICE Places places_of(const Run &run) {
  Places places;
#pragma unroll
  for (int l = 0; l < LOADS; l++) {
    const int i = threadIdx.x + l * THREADS, pixel = i / PER_PIXEL, row = pixel / IN_W;
    const int d = row / IN_H, h = row % IN_H, w = pixel % IN_W;
    places.from[l] = d * DILATION_D * run.x_d + h * run.x_h + w * run.x_w + i % PER_PIXEL * 4 * run.x_c;
    places.at[l] = (u32)d << 24 | (u32)h << 12 | (u32)w;
  }
  return places;
}

// The thread's units of a tile of x; zeros beyond the image.
TS_MMA_DEVICE void fetch(const Run &run, const Places &places, int tile, Pack<Element, 4> (&units)[LOADS]) {
  const Tile t = tile_of(run, tile);
  const int front = t.d * STRIDE_D - run.pad_d, top = t.h * STRIDE_H - run.pad_h, left = t.w * STRIDE_W - run.pad_w;
  const Element *const corner =
      run.x + ((i64)t.n * run.x_n + (i64)front * run.x_d + (i64)top * run.x_h + (i64)left * run.x_w);
  const int next = CHANNELS_LAST ? 1 : run.x_c;
#pragma unroll
  for (int l = 0; l < LOADS; l++) {
    const u32 at = places.at[l];
    const int d = front + (int)(at >> 24) * DILATION_D, h = top + (int)(at >> 12 & 4095), w = left + (int)(at & 4095);
    const bool inside = (u32)d < (u32)run.in_d && (u32)h < (u32)run.in_h;
    const int first = PER_PIXEL > 1 ? (threadIdx.x + l * THREADS) % PER_PIXEL * 4 : 0;
    units[l] = Pack<Element, 4>();
    if constexpr (VECTOR == 4) {
      if (inside && (u32)w < (u32)run.in_w) units[l] = *(const Pack<Element, 4> *)(corner + places.from[l]);
    } else {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int c = TAPS > 1 ? e % C : e, away = TAPS > 1 ? e / C * DILATION_W : 0;
        if (inside && (u32)(w + away) < (u32)run.in_w && (TAPS > 1 || first + c < C))
          units[l].v[e] = corner[places.from[l] + away * run.x_w + c * next];
      }
    }
  }
}

TS_MMA_DEVICE void put(unsigned char *tile, const Pack<Element, 4> (&units)[LOADS]) {
#pragma unroll
  for (int l = 0; l < LOADS; l++) {
    const int i = threadIdx.x + l * THREADS;
    if (i < TILE_UNITS) *(Pack<Element, 4> *)(tile + i * 8) = units[l];
  }
}

// Bytes from a tile's first unit to that of a pixel of its results.
TS_MMA_CONSTANT int place_of(int pixel) {
  return (pixel / TILE_W * STRIDE_H * PITCH + pixel % TILE_W * STRIDE_W * PER_PIXEL) * 8;
}

