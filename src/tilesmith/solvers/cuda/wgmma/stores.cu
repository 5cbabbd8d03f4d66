// How a warpgroup's results leave.
TS_DEVICE ts_u32 shared_bias(const Block &my) { return my.barriers + BARRIERS + my.wg * (BLOCK_N * 4); }

TS_DEVICE void add_left_out(const Run &run, const Block &my, const Work &w, Sums &sums) {
  const Planes p = planes_of(run, w);
  if (p.last - p.first >= PLANES) return;
#pragma unroll
  for (int i = 0; i < BLOCK_N / 4; i++) { // columns
    const float more = left_out(run, p, w.n * BLOCK_N + i / 2 * 8 + (my.lane & 3) * 2 + i % 2, run.cols);
#pragma unroll
    for (int m = 0; m < MI; m++) sums[m][i / 2 * 4 + i % 2] += more, sums[m][i / 2 * 4 + i % 2 + 2] += more;
  }
}

TS_DEVICE void store_partial(const Run &run, const Block &my, const Work &w, const Sums &sums) {
  Quad *to = partial_at(run, w) + my.lane;
#pragma unroll
  for (int m = 0; m < MI; m++) {
    const int strip = ((PINGPONG ? 0 : my.wg) * MI + m) * 4 + my.warp;
#pragma unroll
    for (int j = 0; j < STRIP; j++) {
      const Sum *v = sums[m] + 4 * j;
      to[(strip * STRIP + j) * 32] = Quad{v[0], v[1], v[2], v[3]};
    }
  }
}

// --- shared memory on the way ---
// The buffers of a warp (of a warpgroup, when TRANSPOSED): how many chunks have taken one, and had when the tile began;
// the phase of its residual, where all of it arrives at once; the chunk of the tile that is on its way.
struct Staging {
  ts_u32 buffer, first, phase;
  int piece;
};
// For the tile's chunk of this number, into the buffer that its results leave from.
TS_DEVICE void ask_for_residual(const Maps &maps, const Block &my, const Work &w, const Staging &staging, int piece) {
  constexpr int BYTES = TRANSPOSED ? 4 * BUFFER : BUFFER;
  const int row = row_of(my, w) + piece / CHUNKS * 64, column = w.n * BLOCK_N + piece % CHUNKS * CHUNK;
  const ts_u32 slot = (staging.first + piece) % BUFFERS, barrier = arrived(my) + (ARRIVALS > 1 ? 8 * slot : 0);
  const ts_u32 to = my.staging + ((TRANSPOSED ? my.wg : my.wg * 4 + my.warp) * BUFFERS + slot) * BYTES;
  if (ARRIVALS > 1) ts_expect(barrier, BYTES);
  if (!TRANSPOSED) ts_load3(to, maps.residual, barrier, column, row + my.warp * 16, third_of(w));
  for (int i = 0; TRANSPOSED && i < 64; i += CHUNK)
    ts_load3(to + i * 128, maps.residual, barrier, row + i, column, third_of(w));
}
TS_DEVICE void await_residual(const Block &my, const Staging &staging) {
  const ts_u32 number = staging.first + staging.piece;
  if (ARRIVALS > 1) ts_wait(arrived(my) + number % BUFFERS * 8, number / BUFFERS & 1);
  else if (staging.piece == 0) ts_wait(arrived(my), staging.phase);
}
// Into the buffer of the chunk before.
TS_DEVICE void ask_for_next(const Maps &maps, const Block &my, const Work &w, const Staging &staging) {
  if (ARRIVALS < 2 || staging.piece < 1 || staging.piece + BUFFERS > TILE_CHUNKS) return;
  ts_store_wait_read<1>();
  ask_for_residual(maps, my, w, staging, staging.piece - 1 + BUFFERS);
}

// --- a chunk: units from `from` until `to` of 64 rows, of which a warp has those from `row` on ---
struct Chunk {
  int number, from, to, row, column0; // column0: of unit 0
};
using RowSums = Sum[BLOCK_N / 2];

TS_DEVICE void finish_chunk(const Run &run, const Block &my, const Chunk &c, RowSums &sums, const float (&rows_bias)[2],
                            ts_u32 bias, ts_i64 low, ts_i64 high, float (&probe)[4]) {
  const int row = c.row + (my.lane >> 2), in_column = (my.lane & 3) * 2;
#pragma unroll
  for (int j = c.from; j < c.to; j++) {
    const int column = c.column0 + j * 8 + in_column;
    const ts_u32 columns_bias = bias + (j * 8 + in_column) * 4;
    Sum *v = sums + 4 * j;
    if (NARROW && WHOLE_SUMS && STORE == MAPPED) { // on their way to shared memory
    } else if (FINISHED_ALONE) {
      if ((j - c.from) % AT_ONCE == 0) {
        constexpr bool STORED = STORE == DIRECT;
        if (j + AT_ONCE <= c.to) finish_units<AT_ONCE, STORED>(run, v, row, column, low, high, rows_bias, columns_bias);
        else
          for (int i = 0; i < c.to - j; i++)
            finish_units<1, STORED>(run, v + 4 * i, row, column + i * 8, low, high, rows_bias, columns_bias + i * 32);
      }
    } else {
      if (SCALED)
        for (int i = 0; i < 4; i++) v[i] *= run.alpha;
      if (BIAS && BIAS_OF_ROW) {
        v[0] += rows_bias[0], v[1] += rows_bias[0], v[2] += rows_bias[1], v[3] += rows_bias[1];
      } else if (BIAS) {
        float two[2];
        bias_of(columns_bias, two);
        v[0] += two[0], v[1] += two[1], v[2] += two[0], v[3] += two[1];
      }
      if (!STAGED)
        for (int i = 0; i < 4; i++) v[i] = activate(v[i]);
    }
    if (REPAIR)
      for (int i = 0; i < 4; i++) probe[i] = fmaf(v[i], 0.0f, probe[i]);
  }
}

// A warpgroup's 64 rows are the contiguous axis of the result.
TS_DEVICE void store_transposed(const Run &run, const Maps &maps, const ts_map *map, const Block &my, const Work &w,
                                const Chunk &c, RowSums &sums, Staging &staging, bool dry) {
  const ts_u32 at = my.staging + (my.wg * BUFFERS + staging.buffer % BUFFERS) * 4 * BUFFER;
  staging.buffer++, staging.piece++;
  if (STAGED) {
    if (!dry) await_residual(my, staging);
  } else {
    if (my.thread == 0) ts_store_wait_read<BUFFERS - 1>();
    ts_named_sync(2 + my.wg, 128);
  }
  const int quad = my.lane >> 3, r = my.lane & 7, in_row = my.lane >> 2, in_column = (my.lane & 3) * 2;
#pragma unroll
  for (int j = c.from; WIDE && j < c.to; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) { // lines of 32 rows: two for the 64 of a warpgroup
      const int in_line = my.warp % 2 * 16 + in_row + e / 2 * 8, column = (j - c.from) * 8 + in_column + e % 2;
      const ts_u32 line = at + my.warp / 2 * (2 * BUFFER) + column * 128;
      const ts_u32 place = line + ((in_line / 4 ^ column % 8) << 4) + in_line % 4 * 4;
      Sum &v = sums[4 * j + e];
      if (STAGED) v = activate(v + __uint_as_float(ts_shared_load(place)));
      ts_shared_store(place, v);
    }
#pragma unroll
  for (int j = c.from; OUT_SIZE == 2 && j < c.to; j += 2) {
    const ts_u32 line = at + ((j - c.from + (quad >> 1)) * 8 + r) * 128;
    const ts_u32 to16 = line + (((my.warp * 2 + (quad & 1)) ^ r) << 4);
    if (STAGED) add_residual<true>(to16, sums + 4 * j, j + 1 < c.to);
    ts_put_sums<Out, true>(to16, (const float *)sums + 4 * j, j + 1 < c.to);
  }
  ts_async_fence();
  ts_named_sync(2 + my.wg, 128);
  if (my.thread == 0 && !dry) {
    for (int i = 0; i < 64; i += CHUNK)
      ts_store3(map, at + i * 128, c.row - my.warp * 16 + i, c.column0 + c.number * CHUNK, third_of(w));
    ts_store_commit();
    ask_for_next(maps, my, w, staging);
  }
}

// 16 rows of 128 bytes of a chunk to shared memory, at `at`; what is left of the line is up to STORE.
TS_DEVICE void stage_rows(const Run &run, const Block &my, const Chunk &c, RowSums &sums, ts_u32 at, ts_i64 low,
                          ts_i64 high) {
  const int quad = my.lane >> 3, r = my.lane & 7, in_row = my.lane >> 2, in_column = (my.lane & 3) * 2;
#pragma unroll
  for (int j = c.from; WIDE && j < c.to; j++) { // a pair of results for each lane
    Sum *const v = sums + 4 * j;
    const ts_u32 pair = at + in_row * 128 + ((((j - c.from) * 2 + (my.lane >> 1 & 1)) ^ in_row) << 4) + (my.lane & 1) * 8;
    if (STAGED) add_pairs(v, pair);
    ts_shared_store2(pair, v[0], v[1]), ts_shared_store2(pair + 1024, v[2], v[3]);
  }
#pragma unroll
  for (int j = c.from; NARROW && j < c.to; j++) {
    Sum *const v = sums + 4 * j;
    const int column = c.column0 + j * 8 + in_column;
    const ts_u32 pair = at + in_row * 128 + (((j - c.from) / 2 ^ in_row) << 4) + j % 2 * 8 + in_column;
    if (STAGED) add_pairs(v, pair);
    ts_shared_store(pair, bytes_of<Out>(run, v[0], v[1], c.row + in_row, column, low));
    ts_shared_store(pair + 1024, bytes_of<Out>(run, v[2], v[3], c.row + in_row + 8, column, high));
  }
#pragma unroll
  for (int j = c.from; OUT_SIZE == 2 && j < c.to; j += 2) {
    const ts_u32 to16 = at + (r + (quad & 1) * 8) * 128 + (((j - c.from + (quad >> 1)) ^ r) << 4);
    if (STAGED) add_residual<false>(to16, sums + 4 * j, j + 1 < c.to);
    ts_put_sums<Out, false>(to16, (const float *)sums + 4 * j, j + 1 < c.to);
  }
}

TS_DEVICE void store_by_map(const Run &run, const Maps &maps, const ts_map *map, const Block &my, const Work &w,
                            const Chunk &c, ts_u32 at, const Staging &staging) {
  if (KIND == WRW) {
    const int slab = w.n * (BLOCK_N / 64) + c.number, tap = ts_quotient(slab, run.by_blocks);
    if (!GROUPED) ts_store3(map, at, (slab - tap * run.blocks) * 64, tap, c.row);
    else if (c.row < run.rows) ts_store3(map, at, (slab - tap * run.blocks) * 64, tap, w.group * run.rows + c.row);
  } else {
    ts_store3(map, at, c.column0 + c.number * CHUNK, c.row, third_of(w));
  }
  ts_store_commit();
  ask_for_next(maps, my, w, staging);
}

// Words of neighbouring lanes, packed as rows lie in memory: an odd row begins inside a word.
TS_DEVICE void store_run(const Run &run, const Block &my, const Chunk &c, ts_u32 at) {
  const int lane = my.lane;
  if (c.number == 0 && lane == 0) ts_store_wait_read<0>();
  __syncwarp();
  const int column = c.number * 64 + lane * 2, left = (c.to - c.from) * 8 - lane * 2;
  const int here = left < RUN_COLS - column ? left : RUN_COLS - column;
  const ts_u32 run_at = my.staging + WARPS * BUFFERS * BUFFER + (my.wg * 4 + my.warp) * RUN_BYTES + column * 2;
  ts_u32 words[16], next[16] = {};
  load_words(at, words, lane);
#pragma unroll
  for (int i = 0; i < 16; i++)
    if (i * RUN_COLS & 1) next[i] = __shfl_down_sync(~0u, words[i], 1);
#pragma unroll
  for (int i = 0; i < 16; i++) {
    const ts_u32 two = words[i], to_row = run_at + i * (RUN_COLS * 2);
    if (i * RUN_COLS & 1) {
      if (lane == 0 && here > 0) ts_shared_store(to_row, (ts_u16)two);
      if (here > 2 && lane < 31) ts_shared_store(to_row + 2, two >> 16 | next[i] << 16);
      else if (here > 1) ts_shared_store(to_row + 2, (ts_u16)(two >> 16));
    } else if (here > 1) {
      ts_shared_store(to_row, two);
    } else if (here > 0) {
      ts_shared_store(to_row, (ts_u16)two);
    }
  }
  if (c.number == CHUNKS - 1) { // 16 rows of any length are whole pieces of 16 bytes; fewer may not be
    const int rows = run.rows - c.row, bytes = (rows > 16 ? 16 : rows > 0 ? rows : 0) * (RUN_COLS * 2);
    const ts_u32 first = run_at - column * 2;
    Out *const place = run.out + (ts_i64)c.row * RUN_COLS;
    ts_async_fence();
    __syncwarp();
    if (lane == 0 && bytes >= 16) {
      ts_store_run(place, first, bytes & ~15);
      ts_store_commit();
    }
    if (lane < (bytes & 15) / 2) {
      const int e = bytes / 16 * 8 + lane;
      ((ts_u16 *)place)[e] = (ts_u16)(ts_shared_load(first + e / 2 * 4) >> e % 2 * 16);
    }
  }
}

// Rows that begin at any element; `mine` is where the lane's one begins.
TS_DEVICE void store_lines(const Run &run, const Block &my, const Chunk &c, ts_u32 at, ts_i64 mine) {
  const int lane = my.lane;
  const int column = c.column0 + c.number * 64 + lane * 2, left = (c.to - c.from) * 8 - lane * 2;
  const int here = left < run.cols - column ? left : run.cols - column; // elements of the row from this lane on
  ts_u32 words[16];
  load_words(at, words, lane);
#pragma unroll
  for (int i = 0; i < 16; i++) {
    const ts_i64 line = __shfl_sync(~0u, mine, i);
    const ts_u32 two = words[i], next = __shfl_down_sync(~0u, two, 1);
    ts_u16 *const to_row = (ts_u16 *)run.out + line + column;
    if (line < 0) continue;
    if (line & 1) { // words that begin inside a lane's pair
      if (lane == 0 && here > 0) to_row[0] = (ts_u16)two;
      if (here > 2 && lane < 31) *(ts_u32 *)(to_row + 1) = two >> 16 | next << 16;
      else if (here > 1) to_row[1] = (ts_u16)(two >> 16);
    } else if (here > 1) {
      *(ts_u32 *)to_row = two;
    } else if (here > 0) {
      to_row[0] = (ts_u16)two;
    }
  }
}

TS_DEVICE void store_rows(const Run &run, const Block &my, const Chunk &c, ts_u32 at, ts_i64 mine) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const ts_i64 line = __shfl_sync(~0u, mine, i * 4 + (my.lane >> 3));
    const int piece = my.lane & 7, lr = i * 4 + (my.lane >> 3), column = c.column0 + c.number * 64 + piece * 8;
    const uint4 v = ts_shared_load16(at + lr * 128 + ((piece ^ (lr & 7)) << 4));
    if (line >= 0 && piece < c.to - c.from && column < run.cols) *(uint4 *)(run.out + line + column) = v;
  }
}

TS_DEVICE void store_chunk(const Run &run, const Maps &maps, const ts_map *map, const Block &my, const Work &w,
                           const Chunk &c, RowSums &sums, Staging &staging, ts_i64 low, ts_i64 high, ts_i64 mine, bool dry) {
  const ts_u32 at = my.staging + ((my.wg * 4 + my.warp) * BUFFERS + staging.buffer % BUFFERS) * BUFFER;
  staging.buffer++, staging.piece++;
  if (STORE == MAPPED && !STAGED && my.lane == 0) ts_store_wait_read<BUFFERS - 1>();
  if (STAGED && !dry) await_residual(my, staging);
  __syncwarp();
  stage_rows(run, my, c, sums, at, low, high);
  if (STORE == MAPPED) ts_async_fence();
  if (STORE != RUN) __syncwarp();
  if (STORE == RUN) store_run(run, my, c, at);
  else if (STORE == LINES) store_lines(run, my, c, at, mine);
  else if (STORE == ROWS) store_rows(run, my, c, at, mine);
  else if (my.lane == 0 && !dry) store_by_map(run, maps, map, my, w, c, at, staging);
  if (STORE != MAPPED) __syncwarp();
}

// Where the sums were NaN, though no product that exists need be.
TS_DEVICE void repair_rows(const Run &run, const Block &my, const Work &w, int row0, int rows, int column0, int columns) {
  if (STORE == MAPPED && my.lane == 0) ts_store_wait();
  __syncwarp();
  for (int m = 0; m < rows; m++) {
    const int row = row0 + m / 16 * 64 + my.warp * 16 + m % 16;
    const ts_i64 at = row_at(run, w, row);
    if (at < 0) continue;
    for (int column = column0 + my.lane; column < column0 + columns; column += 32) {
      if (column >= run.cols) continue;
      const float v = ts_fresh(run.out + at + column);
      if (v != v) repair(run, w, row, column, at + column);
    }
  }
  __syncwarp();
}

TS_DEVICE void store(const Run &run, const Maps &maps, const Block &my, const Work &w, Sums &sums, float (&rows_bias)[MI][2],
                     Staging &staging, bool dry) {
  float probe[4] = {}; // several, so that their chains are short
  const int row0 = row_of(my, w), column0 = w.n * BLOCK_N;
  const int in_row = my.lane >> 2;
#if IN_TURNS
  // The text has one part of the results: of 64 rows, all columns or some chunks. To its registers the others move.
  static_assert(TURNS % MI == 0 && (TURNS == MI || BLOCK_N % (TURNS / MI * (STORE == DIRECT ? 8 : CHUNK)) == 0),
                "parts are whole");
  constexpr int m = 0, SIDE_BY_SIDE = TURNS / MI, PART_N = BLOCK_N / SIDE_BY_SIDE;
  constexpr int PART = PART_N / 2, CHUNKS = (PART_N + CHUNK - 1) / CHUNK, ALL = PART_N / 8;
  const auto move = [&](int part) {
#pragma unroll
    for (int known = 1; known < TURNS; known++)
      if (part == known) {
        asm volatile(""); // a branch: selections would take place in every turn
#pragma unroll
        for (int i = 0; i < PART; i++)
          sums[0][i] = sums[known / SIDE_BY_SIDE][known % SIDE_BY_SIDE * PART + i];
      }
    if (MI > 1 && part == SIDE_BY_SIDE)
      rows_bias[0][0] = rows_bias[MI - 1][0], rows_bias[0][1] = rows_bias[MI - 1][1];
  };
#pragma unroll 1
  for (int part = 0; part < TURNS; move(++part)) {
    const int first = part % SIDE_BY_SIDE * PART_N, column0 = w.n * BLOCK_N + first;
    const int row0 = row_of(my, w) + part / SIDE_BY_SIDE * 64;
    const ts_u32 bias = shared_bias(my) + first * 4;
#else
  constexpr int ALL = BLOCK_N / 8;
  const ts_u32 bias = shared_bias(my);
#pragma unroll
  for (int m = 0; m < MI; m++) {
#endif
    const int row = row0 + m * 64 + my.warp * 16;
    ts_i64 low = 0, high = 0, mine = 0;
    if (FINISHED_ALONE)
      low = row_at(run, w, row + in_row), high = row_at(run, w, row + in_row + 8);
    if (BY_ROWS && STORE != RUN) mine = row_at(run, w, row + (my.lane & 15));
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
      constexpr int UNITS_OF = CHUNK / 8;
      const int from = chunk * UNITS_OF, to = from + UNITS_OF < ALL ? from + UNITS_OF : ALL;
      const Chunk c = {chunk, from, to, row, column0};
      const ts_map *map = chunk == CHUNKS - 1 && TAIL ? maps.tail : maps.c;
      finish_chunk(run, my, c, sums[m], rows_bias[m], bias, low, high, probe);
      if (STORE == MAPPED && TRANSPOSED) store_transposed(run, maps, map, my, w, c, sums[m], staging, dry);
      else if (STORE == MAPPED || BY_ROWS)
        store_chunk(run, maps, map, my, w, c, sums[m], staging, low, high, mine, dry);
    }
  }
  staging.phase ^= 1;
  const float sum = probe[0] + probe[1] + (probe[2] + probe[3]);
  if (REPAIR && !dry && __any_sync(~0u, sum != sum)) repair_rows(run, my, w, row0, MI * 16, column0, BLOCK_N);
}
