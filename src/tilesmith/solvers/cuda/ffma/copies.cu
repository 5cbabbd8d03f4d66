
TS_MMA_CONSTANT int power_of_two(int least) {
  int v = 1;
  while (v < least) v *= 2;
  return v;
}

// How the threads copy one operand's tile, which is BLOCK_K lines of EXTENT floats in shared memory.
// An operand whose rows (columns) are contiguous along k is transposed on its way: a warp copies 8 k of 4 rows, a float
// a thread. Those are whole sectors of memory, and as lines are padded they lie in 32 banks.
template <bool BY_K, int EXTENT, int VECTOR> struct Copies {
  static constexpr int PITCH = EXTENT + (BY_K ? 4 : 0), BYTES = BLOCK_K * PITCH * 4;
  static constexpr int WIDE = BY_K ? 4 : VECTOR, DEEP = BY_K ? 8 : 1; // what a worker copies at once
  static constexpr int WORKERS = BY_K ? COPY_THREADS / 32 : COPY_THREADS;
  static constexpr int ACROSS = EXTENT / WIDE, LINES = BLOCK_K / DEEP;
  static constexpr int ROUND = ACROSS % WORKERS ? power_of_two(ACROSS) : ACROSS;
  static constexpr int PLACES = ROUND > WORKERS ? ROUND / WORKERS : 1; // of a worker in a line
  static constexpr int STEP = ROUND > WORKERS ? 1 : WORKERS / ROUND;   // from line to line
  static constexpr int COUNT = (LINES + STEP - 1) / STEP; // lines of a thread
  static constexpr bool EVEN = ROUND == ACROSS && LINES % STEP == 0;
  static_assert(EXTENT % WIDE == 0 && (ROUND % WORKERS == 0 || WORKERS % ROUND == 0), "workers share a line evenly");

  const float *from; // of this step, at the thread's first k and row (column)
  i64 stride;        // from there to its next row (column)
  int rows;          // that exist, from the tile's first on
  int first_k;       // of the thread, in a step
  int row;           // of the thread, in the tile
  int step;          // from k to k; 1 where lines run along k
  u32 to;            // of the thread, in a stage

  TS_MMA_METHOD Copies(const float *base, int extent, int line_step, int k_step, int first) {
    const int thread = threadIdx.x - FIRST_COPIER, worker = BY_K ? thread / 32 : thread, lane = thread % 32;
    const int across = ROUND > WORKERS ? worker : worker % ROUND, line = ROUND > WORKERS ? 0 : worker / ROUND;
    step = BY_K ? 1 : k_step, rows = extent - first;
    first_k = line * DEEP + (BY_K ? lane % 8 : 0), row = across * WIDE + (BY_K ? lane / 8 : 0);
    to = (first_k * PITCH + row) * 4;
    kept(to);
    from = base + ((i64)first_k * step + (i64)(first + row) * line_step);
    stride = (i64)(WORKERS * WIDE) * line_step;
  }
  TS_MMA_METHOD void move_to(int k) { from += (i64)k * step; }
  // Copies the thread's part of a step to `stage`. INSIDE: all of it exists, else `left` k and what `rows` says. ROLLED:
  // in few instructions.
  template <bool INSIDE, bool ROLLED = false> TS_MMA_METHOD void take(u32 stage, int left) const {
    constexpr int BYTES = (BY_K ? 1 : VECTOR) * 4;
    const float *at = from;
#pragma unroll(ROLLED ? 1 : PLACES)
    for (int i = 0; i < PLACES; i++) {
      const int other = row + i * WORKERS * WIDE;
#pragma unroll(ROLLED && !BY_K ? 1 : COUNT)
      for (int k = 0; k < COUNT * STEP * DEEP; k += STEP * DEEP) {
        const bool wanted = EVEN || (first_k + k < BLOCK_K && other < EXTENT);
        const int valid = INSIDE || (first_k + k < left && other < rows) ? BYTES : 0;
        if (wanted) copy_async<BYTES>(stage + to + (k * PITCH + i * WORKERS * WIDE) * 4, at + k * step, valid);
      }
      at += stride;
      kept(at);
    }
  }
  // ROLLED: at the last rows and the last k, in few instructions.
  template <bool ROLLED = false> TS_MMA_METHOD void take_some(u32 stage, int left = BLOCK_K) const {
    if (EXTENT <= rows && left == BLOCK_K)
      take<true>(stage, BLOCK_K);
    else
      take<false, ROLLED>(stage, left);
  }
};
typedef Copies<A_BY_K, BLOCK_M, A_VECTOR> CopiesA;
typedef Copies<B_BY_K, BLOCK_N, B_VECTOR> CopiesB;
static_assert(STAGE_BYTES == CopiesA::BYTES + CopiesB::BYTES && STAGE_BYTES % 16 == 0, "a stage holds both tiles");
