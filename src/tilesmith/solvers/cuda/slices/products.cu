constexpr int MULTIPLIERS = WARPGROUPS * 128, THREADS = MULTIPLIERS + 128, TILE_H = UNITS * LINES;
constexpr int WINDOW_H = TILE_H + TAPS_H - 1, WINDOW_W = TILE_W + TAPS_W - 1, PIXELS = WINDOW_H * WINDOW_W;
constexpr int MOST = (UNITS + WARPGROUPS - 1) / WARPGROUPS, WIDER = UNITS % WARPGROUPS; // units of a warpgroup
constexpr int SUMS = BLOCK_N / 2;                                                        // of a lane, of a unit
// A plane has a piece of 8 channels of all pixels of a window, in 16 bytes. Eight copies that are made together, of two
// pieces of four pixels, of four of two or of eight of one, lie in different banks.
constexpr int APART = STEPS > 3 ? 1 : 4 / STEPS, PLANE = (PIXELS - APART + 7) / 8 * 8 + APART;
static_assert(STAGE_BYTES >= PLANE * STEPS * 32 && STAGE_BYTES % 128 == 0, "a window fits");
static_assert(LINES * TILE_W <= 64 && LINES <= TAPS_H, "a unit has up to 64 rows, and each line of a window is read");

// Warpgroups of both kinds meet, each in its own place of the text, which `bar.sync` and __syncthreads do not allow.
template <int COUNT> TS_MMA_DEVICE void meet() { asm volatile("barrier.sync 1, %0;" ::"n"(COUNT) : "memory"); }
TS_MMA_DEVICE void all_meet() { meet<THREADS>(); }

// Where a lane reads its rows of a unit, in bytes of the window: beyond the last line, those of the first position.
TS_MMA_DEVICE u32 rows_of(int warp, int lane) {
  const int m = warp % 4 * 16 + lane % 16, row = m < LINES * TILE_W ? m : 0;
  return (row / TILE_W * WINDOW_W + row % TILE_W + lane / 16 * PLANE) * 16;
}
// Lines of `lines` whose rows are loaded ahead of the products that read them.
TS_MMA_CONSTANT int ahead_of(int lines) { return lines > 3 ? 2 : lines > 2 ? 1 : 0; }
// Groups of products that may be under way when rows are loaded ahead of line `s`: those behind the last line that was
// in the same one of `buffers`, in this step of 16 products or in the one before it. Below zero: none is free.
TS_MMA_CONSTANT int under_way(int s, int lines, int buffers) {
  const int loaded = s + ahead_of(lines);
  int last = loaded - 1;
  while ((last + 2 * lines) % lines % buffers != loaded % lines % buffers)
    last--;
  return s - 1 - last;
}
// As many buffers as let two groups be under way at all times, where so many help.
TS_MMA_CONSTANT int buffers_of(int lines) {
  int buffers = ahead_of(lines) + 1, least = -1;
  while (buffers < lines && least < 2) {
    least = 2;
    for (int s = 0; s < lines; s++)
      least = under_way(s, lines, buffers) < least ? under_way(s, lines, buffers) : least;
    buffers += least < 2;
  }
  return buffers;
}

// The products of line S of a window, from a unit's first line on: its pixels are read once for all units that see it.
// `rows` are those of this step, `rows_next` those of the one behind it.
template <int COUNT, int S, int BUFFERS>
TS_MMA_DEVICE void multiply_lines(float (&sums)[MOST][SUMS], u32 (&held)[BUFFERS][4], u32 rows, u32 rows_next, u32 by) {
  constexpr int LAST = (COUNT - 1) * LINES + TAPS_H, LOADED = (S + ahead_of(LAST)) % LAST;
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(under_way(S, LAST, BUFFERS)) : "memory");
  load_tiles<false>(held[LOADED % BUFFERS], (LOADED < S ? rows_next : rows) + LOADED * WINDOW_W * 16);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
  for (int i = 0; i < COUNT; i++) {
    const int tap = TAPS_H - 1 - (S - i * LINES); // the first line of a window meets the last tap
    if (tap >= 0 && tap < TAPS_H) product(sums[i], held[S % BUFFERS], (u64)8 << 32 | (by + tap * BLOCK_N), 1);
  }
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  if constexpr (S + 1 < LAST) multiply_lines<COUNT, S + 1, BUFFERS>(sums, held, rows, rows_next, by);
}
template <int COUNT> TS_MMA_DEVICE void multiply_units(float (&sums)[MOST][SUMS], u32 window, u32 by) {
  constexpr int LAST = (COUNT - 1) * LINES + TAPS_H, BUFFERS = buffers_of(LAST);
  u32 held[BUFFERS][4];
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int s = 0; s < ahead_of(LAST); s++)
    load_tiles<false>(held[s % BUFFERS], window + s * WINDOW_W * 16);
  u32 rows = window;
#pragma unroll 1
  for (int s = 0; s < TAPS_W * STEPS; s++) {
    const u32 rows_next = window + ((s + 1) / STEPS + (s + 1) % STEPS * (2 * PLANE)) * 16;
    multiply_lines<COUNT, 0, BUFFERS>(sums, held, rows, rows_next, by + s * (COLUMNS * 2));
    rows = rows_next;
  }
}
// Adds the products of a window of BLOCK_C channels to the sums of a warpgroup.
TS_MMA_DEVICE void multiply_all(float (&sums)[MOST][SUMS], u32 window, u32 filter, bool wider) {
  const u32 by = (u32)COLUMNS << 16 | filter / 16; // the lower word of a descriptor
  if (WIDER == 0 || wider) {
    multiply_units<MOST>(sums, window, by);
  } else {
    multiply_units<WIDER ? MOST - 1 : MOST>(sums, window, by);
  }
}
