// Rows of x, as they lie, in shared memory: the first element of a tile's first run lies at a multiple of 16 bytes.
constexpr int THREADS = WARPS * 32, PHASES = STRIDE_H < FILTER_H ? STRIDE_H : FILTER_H, STEPS = FILTER_D * PHASES;
constexpr int TAPS = (FILTER_H + STRIDE_H - 1) / STRIDE_H, K_STEPS = (LEAD + RUN + 15) / 16, EACH = COPY / 2;
static_assert(STEP % 8 == 0 && (PAD + LEAD) % 8 == 0, "what leads a run begins at a multiple of 16 bytes");
static_assert(CHUNKS * COPY >= ((TILE_W - 1) * STEP + K_STEPS * 16) * 2 && ROW_BYTES >= CHUNKS * COPY, "a row fits");

// Copy `chunk` of a row from element `first` on; zeros beyond the image. `line` is the row's first element.
TS_MMA_DEVICE void copy_chunk(const Run &run, u32 to, i64 line, bool seen, int first, int chunk) {
  const int at = first + chunk * EACH, left = smaller(run.row - at, EACH);
  const int valid = seen && at >= 0 ? larger(left, 0) * 2 : 0;
  copy_async<COPY>(to + chunk * COPY, valid ? run.x + (line + at) : run.x, valid);
}
