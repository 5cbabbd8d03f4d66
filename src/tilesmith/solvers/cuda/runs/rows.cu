// Rows of x, as they lie, in shared memory: the first element of a tile's first run lies at a multiple of 16 bytes.
constexpr int THREADS = WARPS * 32, PHASES = STRIDE_H < FILTER_H ? STRIDE_H : FILTER_H, STEPS = FILTER_D * PHASES;
constexpr int TAPS = (FILTER_H + STRIDE_H - 1) / STRIDE_H, K_STEPS = (LEAD + RUN + 15) / 16, EACH = COPY / 2;
static_assert(STEP % 8 == 0 && (PAD + LEAD) % 8 == 0, "what leads a run begins at a multiple of 16 bytes");
static_assert(CHUNKS * COPY >= ((TILE_W - 1) * STEP + K_STEPS * 16) * 2 && ROW_BYTES >= CHUNKS * COPY, "a row fits");

// With bulk copies (BULK) a warp brings a whole row. A stage has two barriers behind its rows: at the first one the
// rows arrive, at the second one those that have read them.
constexpr int BARRIER_BYTES = BULK ? 16 : 0, FULL_AT = STAGE_BYTES - 16, READ_AT = STAGE_BYTES - 8;
static_assert(!BULK || COPY == 16, "whole pieces");

TS_MMA_DEVICE void make_barriers(u32 ring, int rows, int readers) {
  if (threadIdx.x == 0) {
#pragma unroll
    for (int s = 0; s < STAGES; s++) {
      ts_barrier_init(ring + s * STAGE_BYTES + FULL_AT, rows * 32);
      ts_barrier_init(ring + s * STAGE_BYTES + READ_AT, readers);
    }
    ts_barrier_init_done();
  }
  __syncthreads();
}
// Pieces of 16 bytes of a stage that come from memory; the others, up to `all`, become zero. Lanes that write zeros
// arrive for themselves, else the first one does for all. Zeros that lanes have written there before, barriers and the
// fence put ahead of the copy.
TS_MMA_DEVICE void bring(u32 to, const void *from, int begin, int end, int all, u32 barrier) {
  const int lane = threadIdx.x % 32, zeros = begin + all - end;
#pragma unroll 1
  for (int i = lane; i < zeros; i += 32)
    shared_store16(to + (i < begin ? i : end + i - begin) * 16, 0, 0, 0, 0);
  ts_async_fence();
  __syncwarp();
  if (lane != 0) {
    if (zeros > 0) barrier_arrive(barrier, 1);
    return;
  }
  ts_expect(barrier, (end - begin) * 16);
  if (zeros == 0) barrier_arrive(barrier, 31);
  if (begin < end) ts_load_run(to + begin * 16, from, (end - begin) * 16, barrier);
}
// A row from element `first` on, where the image has it (`seen`).
TS_MMA_DEVICE void bring_row(const Run &run, u32 to, i64 line, bool seen, int first, u32 barrier) {
  const int begin = seen ? smaller(larger(-first, 0) / 8, CHUNKS) : CHUNKS;
  const int end = larger(begin, smaller((run.row - first) / 8, CHUNKS));
  bring(to, run.x + (line + first + begin * 8), begin, end, CHUNKS, barrier);
}

// Copy `chunk` of a row from element `first` on; zeros beyond the image. `line` is the row's first element.
TS_MMA_DEVICE void copy_chunk(const Run &run, u32 to, i64 line, bool seen, int first, int chunk) {
  const int at = first + chunk * EACH, left = smaller(run.row - at, EACH);
  const int valid = seen && at >= 0 ? larger(left, 0) * 2 : 0;
  copy_async<COPY>(to + chunk * COPY, valid ? run.x + (line + at) : run.x, valid);
}
