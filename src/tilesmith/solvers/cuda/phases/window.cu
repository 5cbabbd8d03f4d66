constexpr int THREADS = WARPS_M * WARPS_N * 32;
constexpr int WINDOW_D = TILE_D + TAPS_D - 1, WINDOW_H = TAPS_ON_N ? TILE_H : TILE_H + TAPS_H - 1;
constexpr int WINDOW_W = TILE_W + TAPS_W - 1, PIXELS = WINDOW_D * WINDOW_H * WINDOW_W;

// Pixels from a position's first one to the one that a tap meets.
TS_MMA_CONSTANT int pixel_of(int tap) {
  const int d = tap / (TAPS_H * TAPS_W), h = tap / TAPS_W % TAPS_H, w = tap % TAPS_W;
  return (d * WINDOW_H + h) * WINDOW_W + w;
}
