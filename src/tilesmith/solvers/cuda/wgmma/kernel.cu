extern "C" __global__ void __launch_bounds__(THREADS, PER_SM) @SYM@(TS_PARAMETERS) {
  extern __shared__ __align__(1024) unsigned char ts_shared[];
  if (threadIdx.x == WARPGROUPS * 128) ts_map_prefetch(&map_a), ts_map_prefetch(&map_b);
  Run run = TS_RUN;
  const auto bias_of_all = run.bias;
  const ts_u32 ring = ts_shared_address(ts_shared), staging = ring + RING, barriers = staging + STAGING;
  const auto full = [=](ts_u32 stage) { return barriers + 8 * stage; };
  const auto empty = [=](ts_u32 stage) { return barriers + 8 * (STAGES + stage); };
  const int wg = __shfl_sync(~0u, threadIdx.x >> 7, 0), thread = threadIdx.x & 127, lane = threadIdx.x & 31;
  const int warp = __shfl_sync(~0u, thread >> 5, 0), rank = SPLIT * CAST > 1 ? (int)ts_cluster_rank() : 0;
  const ts_u32 received = barriers + 16 * STAGES, own = RECEIVE_APART ? staging : ring;
  const ts_u32 arrived = received + 8 + 8 * ARRIVALS * (TRANSPOSED ? wg : wg * 4 + warp); // of the residual
  const ts_u32 factors = barriers + BARRIERS + BIAS_BYTES;
  const ts_u32 kept = (factors + FACTOR_BYTES + 1023) / 1024 * 1024; // B's steps, when they stay
  const int begin = ONCE ? 0 : blockIdx.x / (SPLIT * CAST), stride = ONCE ? 1 : gridDim.x / (SPLIT * CAST);
  const int until = ONCE ? 1 : run.total;

  if (wg < WARPGROUPS) {
    ts_named_sync(15, THREADS);
    // Before these warps wait for registers: copying warps may give theirs only after the cluster's barrier.
    if (CAST > 1 || RECEIVE_APART) ts_cluster_arrive();
    ts_registers_grow<PRODUCT_REGISTERS>();
    if (CAST > 1) ts_cluster_wait();
    constexpr ts_u64 A_LAYOUT = A_BY_COLUMNS ? ts_descriptor(A_SLAB, 1024, 128) : ts_descriptor(16, 8 * SPAN, SPAN);
    constexpr ts_u64 B_LAYOUT =
        B_BY_COLUMNS ? ts_descriptor(B_SLAB, 16 * SLAB_COLS, 2 * SLAB_COLS) : ts_descriptor(16, 8 * SPAN, SPAN);
    constexpr ts_u64 A_NEXT = A_BY_COLUMNS ? 128 : 2, B_NEXT = B_BY_COLUMNS ? 2 * SLAB_COLS : 2; // the next 16 of k
    ts_u32 stage = 0, phase = 0, buffer = 0, residual_phase = 0;
    int turn = DRY_RUN ? -1 : 0;
    if (PINGPONG && wg == WARPGROUPS - 1) ts_named_arrive(8, 256);
    const auto begin_to_read = [&] {
      ts_wait_previous();
      if (FACTORED) run.alpha *= *run.row_factors * *run.column_factors;
    };
    if (!DRY_RUN) begin_to_read();
    for (int t = begin + turn * stride; t < until; t += stride, turn++) {
      const bool dry = DRY_RUN && turn < 0; // nothing is waited for, read or stored
      if (DRY_RUN && !dry) begin_to_read(), buffer = residual_phase = 0;
      const Work w = work_at(run, dry ? begin : t, rank);
      const int third = KIND == GEMM ? w.layer : w.group; // the last axis of the result's map
      if (GROUPED && BIAS) run.bias = bias_of_all + w.group * run.cols;
      if (PINGPONG && (DRY_RUN ? wg != 0 : turn % WARPGROUPS != wg)) { // of one tile, the first warpgroup's
        const ts_u32 next = stage + (ts_u32)(w.last - w.first);
        phase ^= next / STAGES & 1;
        stage = next % STAGES;
        continue;
      }
      const ts_u32 buffer0 = buffer;
      const auto ask = [&](int piece) { // of the residual: the tile's chunk of this number
        constexpr int BYTES = TRANSPOSED ? 4 * BUFFER : BUFFER;
        const int row = w.m * BLOCK_M + (PINGPONG ? 0 : wg * WG_ROWS) + piece / CHUNKS * 64;
        const int column = w.n * BLOCK_N + piece % CHUNKS * CHUNK;
        const ts_u32 slot = (buffer0 + piece) % BUFFERS, barrier = arrived + (ARRIVALS > 1 ? 8 * slot : 0);
        const ts_u32 to = staging + ((TRANSPOSED ? wg : wg * 4 + warp) * BUFFERS + slot) * BYTES;
        if (ARRIVALS > 1) ts_expect(barrier, BYTES);
        if (!TRANSPOSED) ts_load3(to, &TS_RESIDUAL_MAP, barrier, column, row + warp * 16, third);
        for (int i = 0; TRANSPOSED && i < 64; i += CHUNK)
          ts_load3(to + i * 128, &TS_RESIDUAL_MAP, barrier, row + i, column, third);
      };
      if (STAGED && !dry && (TRANSPOSED ? thread : lane) == 0) {
        ts_store_wait_read<0>();
        if (ARRIVALS == 1) ts_expect(arrived, TILE_CHUNKS * (TRANSPOSED ? 4 * BUFFER : BUFFER));
        for (int i = 0; i < BUFFERS; i++) ask(i);
      }
      ts_u32 columns_bias[2] = {};
      Bias rows_read[MI][2] = {}; // as they lie: what converts them would wait for them
      if (SHARED_BIAS && !dry && thread < BLOCK_N / 2) {
        const int column = w.n * BLOCK_N + thread * 2;
        if (column < run.cols) read_bias(run.bias + column, column + 1 < run.cols, columns_bias);
      }
      if (ROWS_BIAS && !dry) {
#pragma unroll
        for (int i = 0; i < MI * 2; i++) {
          const int row = w.m * BLOCK_M + (PINGPONG ? 0 : wg * WG_ROWS) + i / 2 * 64 + warp * 16 + (lane >> 2) + i % 2 * 8;
          if (row < run.rows) rows_read[i / 2][i % 2] = run.bias[row];
        }
      }
      const ts_u32 shared_bias = barriers + BARRIERS + wg * (BLOCK_N * 4);
      const auto share_bias = [&] {
        if (!ONCE) ts_named_sync(2 + wg, 128); // the last tile's has been read
        if (thread < BLOCK_N / 2) put_bias(shared_bias + thread * 8, columns_bias);
        ts_named_sync(2 + wg, 128);
      };
      Sum sums[MI][BLOCK_N / 2];
      ts_sums_begin(sums);
      if (PROMOTED)
        for (int i = 0; i < MI * BLOCK_N / 2; i++) sums[i / (BLOCK_N / 2)][i % (BLOCK_N / 2)] = 0;
      // NOTE: mbarriers know two phases only: without an order, a warpgroup that skips a whole turn of the ring
      // meets a stale phase.
      if (PINGPONG && !dry) ts_named_sync(8 + wg, 256);
      ts_u32 before = 0;
      for (int k = dry ? w.last : w.first; k < w.last; k++) {
        ts_wait(full(stage), phase);
        const ts_u32 a = ring + stage * STAGE + (PINGPONG ? 0 : wg * MI * A_SLAB);
        const ts_u32 b = RESIDENT ? kept + k * B_BYTES : ring + stage * STAGE + A_BYTES;
        if (PROMOTED) {
          // NOTE: the tensor cores add products of bytes with 13 bits of fraction. Sums of 128 products at most are added
          // to fp32 ones, while the other warpgroups multiply.
          Sum few[PRODUCT_N / 2];
          ts_sums_begin(few);
#pragma unroll
          for (int i = 0; i < PARTS * MI * PIECES; i++) {
            const int part = i / (MI * PIECES), m = i / PIECES % MI, piece = i % PIECES;
            const ts_u64 ad = ts_at(A_LAYOUT, a + part * A_PART + m * A_SLAB);
            const ts_u64 bd = ts_at(B_LAYOUT, b + part * B_PART + piece * PRODUCT_N * SPAN);
            ts_product_fence();
#pragma unroll
            for (int j = 0; j < SPAN / 32; j++) product(few, ad + j * A_NEXT, bd + j * B_NEXT, j != 0);
            ts_product_commit();
            const int column = w.n * BLOCK_N + piece * PRODUCT_N;
            float of_rows[2], of_columns[COLUMN_FACTORS]; // of each column, or of two blocks
            if (BLOCKWISE) {
              const ts_u32 from = factors + stage * FACTOR_STAGE + part * (FACTOR_STAGE / PARTS), behind = from + BLOCK_M * 4;
              const int row = (PINGPONG ? 0 : wg * WG_ROWS) + m * 64 + warp * 16 + (lane >> 2);
              of_rows[0] = factor_at(from, row), of_rows[1] = factor_at(from, row + 8);
              const int first = column / COLUMNS_SHARE - w.n * BLOCK_N / COLUMNS_SHARE;
#pragma unroll
              for (int j = 0; j < COLUMN_FACTORS; j++)
                of_columns[j] = factor_at(behind, COLUMNS_SHARE > 1 ? first + j : first + j / 2 * 8 + (lane & 3) * 2 + j % 2);
            }
            ts_product_wait<0>();
            ts_sums_ready(few);
            if (i == PARTS * MI * PIECES - 1) release(empty(stage), thread);
            Sum *to = sums[m] + piece * (PRODUCT_N / 2);
            if (BLOCKWISE) {
              add_scaled(to, few, of_rows, of_columns, COLUMNS_SHARE - column % COLUMNS_SHARE);
              continue;
            }
#pragma unroll
            for (int j = 0; j < PRODUCT_N / 2; j++) to[j] += few[j];
          }
          if (++stage == STAGES) stage = 0, phase ^= 1;
          continue;
        }
        if (READ_BY_LANES) {
#pragma unroll
          for (int part = 0; part < PARTS; part++) {
            ts_u32 held[MI][SPAN / 32][4];
#pragma unroll
            for (int i = 0; i < MI * (SPAN / 32) * 4; i++) {
              const int m = i / (SPAN / 8), j = i / 4 % (SPAN / 32), e = i % 4;
              const int depth = (lane & 3) + e / 2 * 4, row = warp * 16 + (lane >> 2) + e % 2 * 8, in_line = row % LINE;
              const ts_u32 line = a + m * A_SLAB + row / LINE * (BLOCK_K * 128) + (part * PART_K + j * 8 + depth) * 128;
              held[m][j][e] = ts_shared_load(line + ((in_line / 4 ^ depth) << 4) + in_line % 4 * 4);
            }
            ts_product_fence();
#pragma unroll
            for (int i = 0; i < MI * (SPAN / 32); i++) {
              const int m = i % MI, j = i / MI;
              product(sums[m], held[m][j], ts_at(B_LAYOUT, b + part * B_PART) + j * B_NEXT, k != w.first || part + j != 0);
            }
            ts_product_commit();
            ts_product_wait<0>();
            ts_sums_ready(sums);
          }
          ts_named_sync(2 + wg, 128); // until all warps have read
          release(empty(stage), thread);
          if (++stage == STAGES) stage = 0, phase ^= 1;
          continue;
        }
        ts_product_fence();
#pragma unroll
        for (int i = 0; i < BLOCK_K * SIZE / 32; i++) {
          const int part = i / (SPAN / 32), inner = i % (SPAN / 32);
          const int a_at = A_BY_COLUMNS ? 0 : part * A_PART, b_at = B_BY_COLUMNS ? 0 : part * B_PART;
          const ts_u64 bd = ts_at(B_LAYOUT, b + b_at) + (B_BY_COLUMNS ? i : inner) * B_NEXT;
#pragma unroll
          for (int m = 0; m < MI; m++)
            product(sums[m], ts_at(A_LAYOUT, a + m * A_SLAB + a_at) + (A_BY_COLUMNS ? i : inner) * A_NEXT, bd,
                    k != w.first || i != 0);
        }
        ts_product_commit();
        if (k > w.first) {
          ts_product_wait<1>();
          release(empty(before), thread);
        }
        before = stage;
        if (++stage == STAGES) stage = 0, phase ^= 1;
      }
      if (PINGPONG && !dry) ts_named_arrive(8 + (wg + 1) % WARPGROUPS, 256);
      if (SHARED_BIAS) share_bias();
      if (!PROMOTED && !READ_BY_LANES) {
        ts_product_wait<0>();
        ts_sums_ready(sums);
        if (!dry) release(empty(before), thread);
      }
      float rows_bias[MI][2] = {};
#pragma unroll
      for (int i = 0; ROWS_BIAS && i < MI * 2; i++) rows_bias[i / 2][i % 2] = ts_float(rows_read[i / 2][i % 2]);

      const int row0 = w.m * BLOCK_M + (PINGPONG ? 0 : wg * WG_ROWS), column0 = w.n * BLOCK_N;
      const int in_row = lane >> 2, in_column = (lane & 3) * 2;
      if (LOOKS) {
        const Planes p = planes_of(run, w);
        if (p.last - p.first < PLANES) {
#pragma unroll
          for (int i = 0; i < BLOCK_N / 4; i++) { // columns
            const float more = left_out(run, p, column0 + i / 2 * 8 + in_column + i % 2, run.cols);
#pragma unroll
            for (int m = 0; m < MI; m++) sums[m][i / 2 * 4 + i % 2] += more, sums[m][i / 2 * 4 + i % 2 + 2] += more;
          }
        }
      }
      if (SPLIT > 1) {
        if (!RECEIVE_APART) {
          ts_named_sync(1, WARPS * 32); // the ring is free
          ts_cluster_arrive();
        }
        send(sums, own, received, rank, wg * 4 + warp, lane);
        ts_wait(received, 0);
        ts_named_sync(1, WARPS * 32);
        ts_cluster_arrive(); // what the peers sent has arrived
        add_and_store(run, w, own, rank, wg * 4 + warp, lane);
        ts_cluster_wait(); // no block ends before its copies do
      } else if (STORE == PARTIAL) {
        Quad *to = partial_at(run, w) + lane;
#pragma unroll
        for (int m = 0; m < MI; m++) {
          const int strip = ((PINGPONG ? 0 : wg) * MI + m) * 4 + warp;
#pragma unroll
          for (int j = 0; j < STRIP; j++) {
            const Sum *v = sums[m] + 4 * j;
            to[(strip * STRIP + j) * 32] = Quad{v[0], v[1], v[2], v[3]};
          }
        }
      } else {
        float probe[4] = {}; // several, so that their chains are short
        int piece = -1; // the chunk of the tile that is on its way
        const auto await_residual = [&] {
          if (dry) return;
          if (ARRIVALS > 1) ts_wait(arrived + (buffer0 + piece) % BUFFERS * 8, (buffer0 + piece) / BUFFERS & 1);
          else if (piece == 0) ts_wait(arrived, residual_phase);
        };
        const auto ask_for_next = [&] { // whose buffer is that of the chunk before
          if (ARRIVALS < 2 || piece < 1 || piece + BUFFERS > TILE_CHUNKS) return;
          ts_store_wait_read<1>();
          ask(piece - 1 + BUFFERS);
        };
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
        const ts_u32 bias_of_tile = shared_bias;
#pragma unroll 1
        for (int part = 0; part < TURNS; move(++part)) {
          const int first = part % SIDE_BY_SIDE * PART_N, column0 = w.n * BLOCK_N + first;
          const int row0 = w.m * BLOCK_M + (PINGPONG ? 0 : wg * WG_ROWS) + part / SIDE_BY_SIDE * 64;
          const ts_u32 shared_bias = bias_of_tile + first * 4;
#else
        constexpr int ALL = BLOCK_N / 8;
#pragma unroll
        for (int m = 0; m < MI; m++) {
#endif
          const int row = row0 + m * 64 + warp * 16;
          ts_i64 low = 0, high = 0, mine = 0;
          if (FINISHED_ALONE)
            low = row_at(run, w, row + in_row), high = row_at(run, w, row + in_row + 8);
          if (BY_ROWS && STORE != RUN) mine = row_at(run, w, row + (lane & 15));
#pragma unroll
          for (int chunk = 0; chunk < CHUNKS; chunk++) {
            constexpr int UNITS_OF = CHUNK / 8;
            const int from = chunk * UNITS_OF, to = from + UNITS_OF < ALL ? from + UNITS_OF : ALL;
            const ts_map *map = chunk == CHUNKS - 1 && TAIL ? &map_tail : &map_c;
#pragma unroll
            for (int j = from; j < to; j++) {
              const int column = column0 + j * 8 + in_column;
              Sum *v = sums[m] + 4 * j;
              if (NARROW && WHOLE_SUMS && STORE == MAPPED) { // on their way to shared memory
              } else if (FINISHED_ALONE) {
                if ((j - from) % AT_ONCE == 0) {
                  constexpr bool STORED = STORE == DIRECT;
                  const ts_u32 bias = shared_bias + (j * 8 + in_column) * 4;
                  if (j + AT_ONCE <= to) finish_units<AT_ONCE, STORED>(run, v, row + in_row, column, low, high, rows_bias[m], bias);
                  else
                    for (int i = 0; i < to - j; i++)
                      finish_units<1, STORED>(run, v + 4 * i, row + in_row, column + i * 8, low, high, rows_bias[m],
                                              bias + i * 32);
                }
              } else {
                if (SCALED)
                  for (int i = 0; i < 4; i++) v[i] *= run.alpha;
                if (BIAS && BIAS_OF_ROW) {
                  v[0] += rows_bias[m][0], v[1] += rows_bias[m][0], v[2] += rows_bias[m][1], v[3] += rows_bias[m][1];
                } else if (BIAS) {
                  float two[2];
                  bias_of(shared_bias + (j * 8 + in_column) * 4, two);
                  v[0] += two[0], v[1] += two[1], v[2] += two[0], v[3] += two[1];
                }
                if (!STAGED)
                  for (int i = 0; i < 4; i++) v[i] = activate(v[i]);
              }
              if (REPAIR)
                for (int i = 0; i < 4; i++) probe[i] = fmaf(v[i], 0.0f, probe[i]);
            }
            if (STORE == MAPPED && TRANSPOSED) { // a warpgroup's 64 rows are the contiguous axis of the result
              const ts_u32 at = staging + (wg * BUFFERS + buffer % BUFFERS) * 4 * BUFFER;
              buffer++, piece++;
              if (STAGED) {
                await_residual();
              } else {
                if (thread == 0) ts_store_wait_read<BUFFERS - 1>();
                ts_named_sync(2 + wg, 128);
              }
              const int quad = lane >> 3, r = lane & 7;
#pragma unroll
              for (int j = from; WIDE && j < to; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) { // lines of 32 rows: two for the 64 of a warpgroup
                  const int in_line = warp % 2 * 16 + in_row + e / 2 * 8, column = (j - from) * 8 + in_column + e % 2;
                  const ts_u32 line = at + warp / 2 * (2 * BUFFER) + column * 128;
                  const ts_u32 place = line + ((in_line / 4 ^ column % 8) << 4) + in_line % 4 * 4;
                  Sum &v = sums[m][4 * j + e];
                  if (STAGED) v = activate(v + __uint_as_float(ts_shared_load(place)));
                  ts_shared_store(place, v);
                }
#pragma unroll
              for (int j = from; OUT_SIZE == 2 && j < to; j += 2) {
                const ts_u32 line = at + ((j - from + (quad >> 1)) * 8 + r) * 128;
                const ts_u32 to16 = line + (((warp * 2 + (quad & 1)) ^ r) << 4);
                if (STAGED) add_residual<true>(to16, sums[m] + 4 * j, j + 1 < to);
                ts_put_sums<Out, true>(to16, (const float *)sums[m] + 4 * j, j + 1 < to);
              }
              ts_async_fence();
              ts_named_sync(2 + wg, 128);
              if (thread == 0 && !dry) {
                for (int i = 0; i < 64; i += CHUNK)
                  ts_store3(map, at + i * 128, row0 + m * 64 + i, column0 + chunk * CHUNK, third);
                ts_store_commit();
                ask_for_next();
              }
            } else if (STORE == MAPPED || BY_ROWS) {
              const ts_u32 at = staging + ((wg * 4 + warp) * BUFFERS + buffer % BUFFERS) * BUFFER;
              buffer++, piece++;
              if (STORE == MAPPED && !STAGED && lane == 0) ts_store_wait_read<BUFFERS - 1>();
              if (STAGED) await_residual();
              __syncwarp();
              const int quad = lane >> 3, r = lane & 7;
#pragma unroll
              for (int j = from; WIDE && j < to; j++) { // 16 rows of 128 bytes, a pair of results for each lane
                Sum *const v = sums[m] + 4 * j;
                const ts_u32 pair = at + in_row * 128 + ((((j - from) * 2 + (lane >> 1 & 1)) ^ in_row) << 4) + (lane & 1) * 8;
                if (STAGED) add_pairs(v, pair);
                ts_shared_store2(pair, v[0], v[1]), ts_shared_store2(pair + 1024, v[2], v[3]);
              }
#pragma unroll
              for (int j = from; NARROW && j < to; j++) {
                Sum *const v = sums[m] + 4 * j;
                const int column = column0 + j * 8 + in_column;
                const ts_u32 pair = at + in_row * 128 + (((j - from) / 2 ^ in_row) << 4) + j % 2 * 8 + in_column;
                if (STAGED) add_pairs(v, pair);
                ts_shared_store(pair, bytes_of<Out>(run, v[0], v[1], row + in_row, column, low));
                ts_shared_store(pair + 1024, bytes_of<Out>(run, v[2], v[3], row + in_row + 8, column, high));
              }
#pragma unroll
              for (int j = from; OUT_SIZE == 2 && j < to; j += 2) {
                const ts_u32 to16 = at + (r + (quad & 1) * 8) * 128 + (((j - from + (quad >> 1)) ^ r) << 4);
                if (STAGED) add_residual<false>(to16, sums[m] + 4 * j, j + 1 < to);
                ts_put_sums<Out, false>(to16, (const float *)sums[m] + 4 * j, j + 1 < to);
              }
              if (STORE == MAPPED) {
                ts_async_fence();
                __syncwarp();
                if (lane == 0 && !dry) {
                  if (KIND == WRW) {
                    const int slab = w.n * (BLOCK_N / 64) + chunk, tap = ts_quotient(slab, run.by_blocks);
                    if (!GROUPED) ts_store3(map, at, (slab - tap * run.blocks) * 64, tap, row);
                    else if (row < run.rows) ts_store3(map, at, (slab - tap * run.blocks) * 64, tap, w.group * run.rows + row);
                  } else {
                    ts_store3(map, at, column0 + chunk * CHUNK, row, third);
                  }
                  ts_store_commit();
                  ask_for_next();
                }
              } else if (STORE == RUN) {
                // Words of neighbouring lanes, packed as rows lie in memory: an odd row begins inside a word.
                if (chunk == 0 && lane == 0) ts_store_wait_read<0>();
                __syncwarp();
                const int column = chunk * 64 + lane * 2, left = (to - from) * 8 - lane * 2;
                const int here = left < RUN_COLS - column ? left : RUN_COLS - column;
                const ts_u32 run_at = staging + WARPS * BUFFERS * BUFFER + (wg * 4 + warp) * RUN_BYTES + column * 2;
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
                if (chunk == CHUNKS - 1) { // 16 rows of any length are whole pieces of 16 bytes; fewer may not be
                  const int rows = run.rows - row, bytes = (rows > 16 ? 16 : rows > 0 ? rows : 0) * (RUN_COLS * 2);
                  const ts_u32 first = run_at - column * 2;
                  Out *const place = run.out + (ts_i64)row * RUN_COLS;
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
                __syncwarp();
              } else if (STORE == LINES) {
                __syncwarp();
                const int column = column0 + chunk * 64 + lane * 2, left = (to - from) * 8 - lane * 2;
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
                __syncwarp();
              } else {
                __syncwarp();
#pragma unroll
                for (int i = 0; i < 4; i++) {
                  const ts_i64 line = __shfl_sync(~0u, mine, i * 4 + (lane >> 3));
                  const int piece = lane & 7, lr = i * 4 + (lane >> 3), column = column0 + chunk * 64 + piece * 8;
                  const uint4 v = ts_shared_load16(at + lr * 128 + ((piece ^ (lr & 7)) << 4));
                  if (line >= 0 && piece < to - from && column < run.cols) *(uint4 *)(run.out + line + column) = v;
                }
                __syncwarp();
              }
            }
          }
        }
        residual_phase ^= 1;
        const float sum = probe[0] + probe[1] + (probe[2] + probe[3]);
        if (REPAIR && !dry && __any_sync(~0u, sum != sum)) {
          if (STORE == MAPPED && lane == 0) ts_store_wait();
          __syncwarp();
          for (int m = 0; m < MI * 16; m++) {
            const int row = row0 + m / 16 * 64 + warp * 16 + m % 16;
            const ts_i64 at = row_at(run, w, row);
            if (at < 0) continue;
            for (int column = column0 + lane; column < column0 + BLOCK_N; column += 32) {
              if (column >= run.cols) continue;
              const float v = ts_fresh(run.out + at + column);
              if (v != v) repair(run, w, row, column, at + column);
            }
          }
          __syncwarp();
        }
      }
    }
    if (STORE == MAPPED || STORE == RUN) ts_store_wait();
  } else {
    // The copying thread makes the barriers itself and waits for nobody: the first copies are under way before the
    // other warps are.
    const bool copies = threadIdx.x == WARPGROUPS * 128;
    constexpr int READERS = PINGPONG ? 1 : WARPGROUPS, PEERS = CAST_M - 1 + CAST_N - 1;
    constexpr int RELEASES = (BLOCKWISE ? READERS * 4 : READERS) + READERS * PEERS;
    if (copies) {
      for (int i = 0; i < STAGES; i++) {
        ts_barrier_init(full(i), 1 + FACTOR_THREADS);
        if (!ONCE) ts_barrier_init(empty(i), RELEASES);
      }
      if (SPLIT > 1) ts_barrier_init(received, 1);
      if (STAGED && !ONCE)
        for (int i = 0; i < WARPS * ARRIVALS; i++) ts_barrier_init(received + 8 + 8 * i, 1);
      ts_barrier_init_done();
      if (SPLIT > 1) {
        const int left = UNITS - rank * SHARE;
        ts_expect(received, (left < 0 ? 0 : left < SHARE ? left : SHARE) * 512 * (SPLIT - 1));
      }
    } else if (thread == 32) {
      if (ONCE) { // what the first copies do not need
        for (int i = 0; i < STAGES; i++) ts_barrier_init(empty(i), RELEASES);
        for (int i = 0; STAGED && i < WARPS * ARRIVALS; i++) ts_barrier_init(received + 8 + 8 * i, 1);
        ts_barrier_init_done();
      }
      if (STORE == MAPPED) ts_map_prefetch(&map_c);
      if (KIND != GEMM) ts_touch(tap_offset[0] + tap_filter[0] + (LAYERED ? layer_order[0] + phase_first[0] : 0));
    } else if (thread == 64) { // what the copying thread reads next
      touch(run);
    }
    __syncwarp();
    ts_named_arrive(15, THREADS);
    if (BLOCKWISE && thread < 32) ts_named_arrive(14, 128);
    if (!ONCE) ts_registers_shrink<COPY_REGISTERS>();
    if (CAST > 1 || RECEIVE_APART) ts_cluster_arrive();
    if (CAST > 1) ts_cluster_wait(); // until the peers have their barriers
    if (ONCE) {
      // NOTE: a copy of a lane that the compiler sees elected is one instruction, any other is a loop over lanes.
      if (warp == 0 && elected()) {
        const Work w = work_at(run, 0, rank);
        ts_wait_previous();
        // The ring is free, and these copies need no argument.
#pragma unroll 1
        for (int k = 0; k < FIRST; k++) {
          ts_expect(full(k), A_LOADED + B_LOADED);
          const ts_u32 a = ring + k * STAGE;
          load_matrices(&map_a, &map_b, a, a + A_BYTES, full(k), w.m * BLOCK_M, w.n * BLOCK_N, k, rank, 0, 0, true);
        }
      }
      __syncwarp();
      ts_registers_shrink<COPY_REGISTERS>();
      if (warp < 2) ts_named_sync(14, 64); // until all barriers are there
      if (warp == 0 && elected()) {
        const Work w = work_at(run, 0, rank);
        ts_u32 stage = FIRST % STAGES, phase = FIRST / STAGES;
#pragma unroll 1
        for (int k = FIRST; k < w.last; k++) {
          ts_wait(empty(stage), phase ^ 1);
          const ts_u32 a = ring + stage * STAGE;
          ts_expect(full(stage), A_LOADED + B_LOADED);
          load_matrices(&map_a, &map_b, a, a + A_BYTES, full(stage), w.m * BLOCK_M, w.n * BLOCK_N, k, rank, 0, 0, true);
          if (++stage == STAGES) stage = 0, phase ^= 1;
        }
        if (EARLY) ts_launch_next();
      }
    } else if (copies) {
      ts_wait_previous();
      ts_u32 stage = 0, phase = 0;
      for (int t = begin; t < until; t += stride) {
        const Work w = work_at(run, t, rank);
        const int row = w.m * BLOCK_M, column = w.n * BLOCK_N;
        Pixel p = {0, 0, 0, 0}, by = {0, 0, 0, 0};
        int tap = 0, block = 0, tap0 = 0, taps = 0;
        if (KIND == CONV) {
          p = pixel_at(run, row);
#if GROUPS_APART
          p.n = w.group; // images are along d
#endif
          tap0 = first_tap(w.layer), taps = first_tap(w.layer + 1) - tap0;
          if (LEAVES_OUT) {
            const Planes planes = planes_of(run, w);
            tap0 = planes.first * PLANE, taps = (planes.last - planes.first) * PLANE;
          }
          if (SLICED || SPLIT > 1) {
            if (taps && TAPS_INNER) block = w.first / taps, tap = w.first - block * taps;
            else tap = ts_quotient(w.first, run.by_blocks), block = w.first - tap * run.blocks;
          }
        }
        ts_u32 slab_tap[B_COLS / SLAB_COLS + 1];
        int slab_channel[B_COLS / SLAB_COLS + 1];
        if (KIND == WRW) {
          p = pixel_at(run, w.first * BLOCK_K), by = pixel_at(run, BLOCK_K);
#pragma unroll
          for (int q = 0; q < B_COLS / SLAB_COLS; q++) {
            const int slab = w.n * (BLOCK_N / SLAB_COLS) + q, of = ts_quotient(slab, run.by_blocks);
            // Slabs beyond the filter are zeros, as channels beyond the last are.
            slab_tap[q] = of < TAPS ? tap_offset[of] : 0;
            slab_channel[q] = of < TAPS ? (slab - of * run.blocks) * SLAB_COLS : run.blocks * SLAB_COLS;
            if (GROUPED) slab_channel[q] = of < TAPS ? slab_channel[q] + w.group * run.channels : run.groups * run.channels;
          }
        }
        for (int k = w.first; k < w.last; k++) {
          ts_wait(empty(stage), phase ^ 1);
          const bool with_b = !RESIDENT || t == begin;
          ts_expect(full(stage), A_LOADED + (with_b ? B_LOADED : 0));
          const ts_u32 a = ring + stage * STAGE, b = RESIDENT ? kept + k * B_BYTES : a + A_BYTES, done = full(stage);
          // A cluster's blocks share their columns, and each brings its part of them to all.
          constexpr int SLABS = B_COLS / SLAB_COLS / CAST;
          const int part = CAST > 1 ? rank : 0, first_slab = part * SLABS;
          if (KIND == GEMM) {
            const int image = BY_IMAGES ? ts_quotient(k, run.by_image_steps) : 0, of_image = k - image * run.image_steps;
            const int la = BY_IMAGES ? image : w.layer * run.a_layer, lb = BY_IMAGES ? image : w.layer * run.b_layer;
            load_matrices(&map_a, &map_b, a, b, done, row, column, of_image, rank, la, lb, with_b);
          } else if (KIND == CONV) {
            // A phase that no tap reaches still needs zeros: channels beyond the last are zeros.
#if GROUPS_APART
            const int beyond = run.blocks * BLOCK_K, first = 0;
#else
            const int beyond = GROUPED ? run.groups * run.channels : run.blocks * BLOCK_K;
            const int first = GROUPED ? w.group * run.channels : 0; // of the group
#endif
            const int channel = taps ? first + block * BLOCK_K : beyond;
            const ts_u32 offset = taps ? tap_offset[tap0 + tap] : 0;
            const int of = taps ? tap_filter[tap0 + tap] : 0;
            load_pixels(run, a, &map_a, done, channel, p, offset);
            if (!with_b) {
            } else if (B_BY_COLUMNS) {
#pragma unroll
              for (int q = first_slab; q < first_slab + SLABS; q++)
#if GROUPS_APART
                load_b(&map_b, b + q * B_SLAB, done, column + q * 64, channel, of + w.group * run.b_group, rank);
#else
                load_b(&map_b, b + q * B_SLAB, done, column + q * 64, of, channel, rank);
#endif
            } else {
              const int of_group = column + (GROUPED ? w.group * run.cols : 0), at = part * (BLOCK_N / CAST);
              load_b(&map_b, b + part * (B_BYTES / CAST), done, channel - first, of, of_group + at, rank);
            }
            if (TAPS_INNER) {
              if (++tap == taps) tap = 0, block++;
            } else {
              if (++block == run.blocks) block = 0, tap++;
            }
          } else {
#pragma unroll
            for (int q = 0; q < BLOCK_M / 64; q++)
              ts_load3(a + q * A_SLAB, &map_a, done, (GROUPED ? w.group * run.rows : 0) + row + q * 64, k * BLOCK_K, 0);
#pragma unroll
            for (int q = 0; q < B_COLS / SLAB_COLS; q++)
              load_pixels(run, b + q * B_SLAB, &map_b, done, slab_channel[q], p, slab_tap[q]);
            advance(run, p, by);
          }
          if (++stage == STAGES) stage = 0, phase ^= 1;
        }
      }
      if (EARLY) ts_launch_next();
    }
    if (BLOCKWISE && thread >= 32) {
      ts_named_sync(14, 128); // the barriers are there
      ts_wait_previous();
      ts_u32 stage = 0, phase = 0;
      for (int t = begin; t < run.total; t += stride) {
        const Work w = work_at(run, t, rank);
        const int row0 = w.m * BLOCK_M, column0 = w.n * BLOCK_N / COLUMNS_SHARE * COLUMNS_SHARE;
        for (int k = w.first; k < w.last; k++) {
          ts_wait(empty(stage), phase ^ 1);
#pragma unroll
          for (int part = 0; part < PARTS; part++) {
            // Behind the last block there are zeros to multiply.
            const int of = k * PARTS + part, block = of < run.factor_blocks ? of : run.factor_blocks - 1;
            const ts_u32 to = factors + stage * FACTOR_STAGE + part * (FACTOR_STAGE / PARTS);
            for (int i = thread - 32; i < BLOCK_M; i += FACTOR_THREADS)
              copy_factor(to + i * 4, row_factor(run, row0 + i, block));
            for (int i = thread - 32; i < OF_COLUMNS; i += FACTOR_THREADS)
              copy_factor(to + (BLOCK_M + i) * 4, column_factor(run, column0 + i * COLUMNS_SHARE, block));
          }
          asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(full(stage)) : "memory");
          if (++stage == STAGES) stage = 0, phase ^= 1;
        }
      }
    }
    if (SPLIT > 1) { // a cluster's barrier counts all threads
      __syncwarp();
      if (!RECEIVE_APART) ts_cluster_arrive();
      ts_cluster_wait();
      ts_cluster_arrive();
      ts_cluster_wait();
    }
  }
  if (CAST > 1) { // no block ends before the peers' last copies into it, and arrivals at its barriers
    __syncwarp();
    ts_cluster_arrive();
    ts_cluster_wait();
  }
}
