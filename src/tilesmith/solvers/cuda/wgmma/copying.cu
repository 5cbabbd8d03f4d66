// What the copying warps do. One thread copies operands; it makes the barriers itself and waits for nobody: the first copies
// are under way before the other warps are.
TS_DEVICE void make_barriers(const Run &run, const Maps &maps, const Block &my) {
  constexpr int READERS = PINGPONG ? 1 : WARPGROUPS, PEERS = CAST_M - 1 + CAST_N - 1;
  constexpr int RELEASES = (BLOCKWISE ? READERS * 4 : READERS) + READERS * PEERS;
  if (threadIdx.x == WARPGROUPS * 128) {
    for (int i = 0; i < STAGES; i++) {
      ts_barrier_init(full(my, i), 1 + FACTOR_THREADS);
      if (!ONCE) ts_barrier_init(empty(my, i), RELEASES);
    }
    if (SPLIT > 1) ts_barrier_init(my.received, 1);
    if (STAGED && !ONCE)
      for (int i = 0; i < WARPS * ARRIVALS; i++) ts_barrier_init(my.received + 8 + 8 * i, 1);
    ts_barrier_init_done();
    if (SPLIT > 1) {
      const int left = UNITS - my.rank * SHARE;
      ts_expect(my.received, (left < 0 ? 0 : left < SHARE ? left : SHARE) * 512 * (SPLIT - 1));
    }
  } else if (my.thread == 32) {
    if (ONCE) { // what the first copies do not need
      for (int i = 0; i < STAGES; i++) ts_barrier_init(empty(my, i), RELEASES);
      for (int i = 0; STAGED && i < WARPS * ARRIVALS; i++) ts_barrier_init(my.received + 8 + 8 * i, 1);
      ts_barrier_init_done();
    }
    if (STORE == MAPPED) ts_map_prefetch(maps.c);
    if (KIND != GEMM) ts_touch(tap_offset[0] + tap_filter[0] + (LAYERED ? layer_order[0] + phase_first[0] : 0));
  } else if (my.thread == 64) { // what the copying thread reads next
    touch(run);
  }
}

// The operands of a block with one tile.
TS_DEVICE void copy_once(const Run &run, const Maps &maps, const Block &my) {
  // NOTE: a copy of a lane that the compiler sees elected is one instruction, any other is a loop over lanes.
  if (my.warp == 0 && elected()) {
    const Work w = work_at(run, 0, my.rank);
    ts_wait_previous();
    // The ring is free, and these copies need no argument.
#pragma unroll 1
    for (int k = 0; k < FIRST; k++) {
      ts_expect(full(my, k), A_LOADED + B_LOADED);
      const ts_u32 a = my.ring + k * STAGE;
      load_matrices(maps.a, maps.b, a, a + A_BYTES, full(my, k), w.m * BLOCK_M, w.n * BLOCK_N, k, my.rank, 0, 0, true);
    }
  }
  __syncwarp();
  ts_registers_shrink<COPY_REGISTERS>();
  if (my.warp < 2) ts_named_sync(14, 64); // until all barriers are there
  if (my.warp == 0 && elected()) {
    const Work w = work_at(run, 0, my.rank);
    ts_u32 stage = FIRST % STAGES, phase = FIRST / STAGES;
#pragma unroll 1
    for (int k = FIRST; k < w.last; k++) {
      ts_wait(empty(my, stage), phase ^ 1);
      const ts_u32 a = my.ring + stage * STAGE, done = full(my, stage);
      ts_expect(done, A_LOADED + B_LOADED);
      load_matrices(maps.a, maps.b, a, a + A_BYTES, done, w.m * BLOCK_M, w.n * BLOCK_N, k, my.rank, 0, 0, true);
      if (++stage == STAGES) stage = 0, phase ^= 1;
    }
    if (EARLY) ts_launch_next();
  }
}

// Those of every tile of a block, by one thread.
TS_DEVICE void copy_tiles(const Run &run, const Maps &maps, const Block &my) {
  ts_wait_previous();
  ts_u32 stage = 0, phase = 0;
  for (int t = my.begin; t < my.until; t += my.stride) {
    const Work w = work_at(run, t, my.rank);
    const int row = w.m * BLOCK_M, column = w.n * BLOCK_N;
    Pixel p = {0, 0, 0, 0}, by = {0, 0, 0, 0};
    int tap = 0, block = 0, tap0 = 0, taps = 0;
    if (KIND == CONV) {
      p = pixel_at(run, row);
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
      ts_wait(empty(my, stage), phase ^ 1);
      const bool with_b = !RESIDENT || t == my.begin;
      const ts_u32 a = my.ring + stage * STAGE, b = RESIDENT ? my.kept + k * B_BYTES : a + A_BYTES, done = full(my, stage);
      ts_expect(done, A_LOADED + (with_b ? B_LOADED : 0));
      // A cluster's blocks share their columns, and each brings its part of them to all.
      constexpr int SLABS = B_COLS / SLAB_COLS / CAST;
      const int part = CAST > 1 ? my.rank : 0, first_slab = part * SLABS;
      if (KIND == GEMM) {
        const int la = w.layer * run.a_layer, lb = w.layer * run.b_layer;
        load_matrices(maps.a, maps.b, a, b, done, row, column, k, my.rank, la, lb, with_b);
      } else if (KIND == CONV) {
        // A phase that no tap reaches still needs zeros: channels beyond the last are zeros.
        const int beyond = GROUPED ? run.groups * run.channels : run.blocks * BLOCK_K;
        const int first = GROUPED ? w.group * run.channels : 0; // of the group
        const int channel = taps ? first + block * BLOCK_K : beyond;
        const ts_u32 offset = taps ? tap_offset[tap0 + tap] : 0;
        const int of = taps ? tap_filter[tap0 + tap] : 0;
        load_pixels(run, a, maps.a, done, channel, p, offset);
        if (!with_b) {
        } else if (B_BY_COLUMNS) {
#pragma unroll
          for (int q = first_slab; q < first_slab + SLABS; q++)
            load_b(maps.b, b + q * B_SLAB, done, column + q * 64, of, channel, my.rank);
        } else {
          const int of_group = column + (GROUPED ? w.group * run.cols : 0), at = part * (BLOCK_N / CAST);
          load_b(maps.b, b + part * (B_BYTES / CAST), done, channel - first, of, of_group + at, my.rank);
        }
        if (TAPS_INNER) {
          if (++tap == taps) tap = 0, block++;
        } else {
          if (++block == run.blocks) block = 0, tap++;
        }
      } else {
#pragma unroll
        for (int q = 0; q < BLOCK_M / 64; q++)
          ts_load3(a + q * A_SLAB, maps.a, done, (GROUPED ? w.group * run.rows : 0) + row + q * 64, k * BLOCK_K, 0);
#pragma unroll
        for (int q = 0; q < B_COLS / SLAB_COLS; q++)
          load_pixels(run, b + q * B_SLAB, maps.b, done, slab_channel[q], p, slab_tap[q]);
        advance(run, p, by);
      }
      if (++stage == STAGES) stage = 0, phase ^= 1;
    }
  }
  if (EARLY) ts_launch_next();
}

// The factors of all tiles, by the other three warps.
TS_DEVICE void copy_factors(const Run &run, const Block &my) {
  ts_named_sync(14, 128); // the barriers are there
  ts_wait_previous();
  ts_u32 stage = 0, phase = 0;
  for (int t = my.begin; t < run.total; t += my.stride) {
    const Work w = work_at(run, t, my.rank);
    const int row0 = w.m * BLOCK_M, column0 = w.n * BLOCK_N / COLUMNS_SHARE * COLUMNS_SHARE;
    for (int k = w.first; k < w.last; k++) {
      ts_wait(empty(my, stage), phase ^ 1);
#pragma unroll
      for (int part = 0; part < PARTS; part++) {
        // Behind the last block there are zeros to multiply.
        const int of = k * PARTS + part, block = of < run.factor_blocks ? of : run.factor_blocks - 1;
        const ts_u32 to = my.factors + stage * FACTOR_STAGE + part * (FACTOR_STAGE / PARTS);
        for (int i = my.thread - 32; i < BLOCK_M; i += FACTOR_THREADS)
          copy_factor(to + i * 4, row_factor(run, row0 + i, block));
        for (int i = my.thread - 32; i < OF_COLUMNS; i += FACTOR_THREADS)
          copy_factor(to + (BLOCK_M + i) * 4, column_factor(run, column0 + i * COLUMNS_SHARE, block));
      }
      asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(full(my, stage)) : "memory");
      if (++stage == STAGES) stage = 0, phase ^= 1;
    }
  }
}

TS_DEVICE void copy(const Run &run, const Maps &maps, const Block &my) {
  make_barriers(run, maps, my);
  __syncwarp();
  ts_named_arrive(15, THREADS);
  if (BLOCKWISE && my.thread < 32) ts_named_arrive(14, 128);
  if (!ONCE) ts_registers_shrink<COPY_REGISTERS>();
  if (CAST > 1 || RECEIVE_APART) ts_cluster_arrive();
  if (CAST > 1) ts_cluster_wait(); // until the peers have their barriers
  if (ONCE) copy_once(run, maps, my);
  else if (threadIdx.x == WARPGROUPS * 128) copy_tiles(run, maps, my);
  if (BLOCKWISE && my.thread >= 32) copy_factors(run, my);
  if (SPLIT > 1) { // a cluster's barrier counts all threads
    __syncwarp();
    if (!RECEIVE_APART) ts_cluster_arrive();
    ts_cluster_wait();
    ts_cluster_arrive();
    ts_cluster_wait();
  }
}
