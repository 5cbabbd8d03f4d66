// A tile of x in shared memory as units of four elements: a pixel whose channels are padded, or several neighbouring taps
// of pixels with one or two channels.
constexpr int THREADS = WARPS * 32, PITCH = IN_W * PER_PIXEL, TILE_UNITS = IN_D * IN_H * PITCH;
constexpr int LOADS = (TILE_UNITS + THREADS - 1) / THREADS, TILE = (TILE_UNITS * 8 + 127) / 128 * 128;

// A tile's image and its first result.
struct Tile {
  int n, d, h, w;
};
TS_MMA_DEVICE Tile tile_of(const Run &run, int tile) {
  const int column = tile % run.tiles_w, row = tile / run.tiles_w, plane = row / run.tiles_h;
  return {plane / run.out_d, plane % run.out_d, row % run.tiles_h * TILE_H, column * TILE_W};
}

// The thread's units of a tile of x; zeros beyond the image.
TS_MMA_DEVICE void fetch(const Run &run, int tile, Pack<Element, 4> (&units)[LOADS]) {
  const Tile t = tile_of(run, tile);
  const int front = t.d * STRIDE_D - run.pad_d, top = t.h * STRIDE_H - run.pad_h, left = t.w * STRIDE_W - run.pad_w;
  const Element *const image = run.x + (i64)t.n * run.x_n;
#pragma unroll
  for (int l = 0; l < LOADS; l++) {
    const int i = threadIdx.x + l * THREADS, pixel = i / PER_PIXEL, row = pixel / IN_W;
    const int d = front + row / IN_H * DILATION_D, h = top + row % IN_H, w = left + pixel % IN_W;
    const bool inside = i < TILE_UNITS && d >= 0 && d < run.in_d && h >= 0 && h < run.in_h;
    const Element *const from = image + ((i64)d * run.x_d + (i64)h * run.x_h + (i64)w * run.x_w);
    const int first = i % PER_PIXEL * 4;
    units[l] = Pack<Element, 4>();
    if constexpr (VECTOR == 4) {
      if (inside && w >= 0 && w < run.in_w) units[l] = *(const Pack<Element, 4> *)(from + first);
    } else {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int c = TAPS > 1 ? e % C : first + e, away = TAPS > 1 ? e / C * DILATION_W : 0;
        if (inside && w + away >= 0 && w + away < run.in_w && (TAPS > 1 || c < C))
          units[l].v[e] = from[(i64)away * run.x_w + (i64)c * run.x_c];
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

