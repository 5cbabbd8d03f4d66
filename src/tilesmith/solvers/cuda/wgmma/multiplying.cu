// What the multiplying warpgroups do: the sums of a tile, and its results, tile by tile.
TS_DEVICE void begin_to_read(Run &run) {
  ts_wait_previous();
  if (FACTORED) run.alpha *= *run.row_factors * *run.column_factors;
}

TS_DEVICE void multiply(Run run, const Maps &maps, const Block &my) {
  ts_named_sync(15, THREADS);
  // Before these warps wait for registers: copying warps may give theirs only after the cluster's barrier.
  if (CAST > 1 || RECEIVE_APART) ts_cluster_arrive();
  ts_registers_grow<PRODUCT_REGISTERS>();
  if (CAST > 1) ts_cluster_wait();
  const auto bias_of_all = run.bias;
  ts_u32 stage = 0, phase = 0;
  Staging staging = {0, 0, 0, -1};
  int turn = DRY_RUN ? -1 : 0;
  if (PINGPONG && my.wg == 1) ts_named_arrive(8, 256);
  if (!DRY_RUN) begin_to_read(run);
  for (int t = my.begin + turn * my.stride; t < my.until; t += my.stride, turn++) {
    const bool dry = DRY_RUN && turn < 0; // nothing is waited for, read or stored
    if (DRY_RUN && !dry) begin_to_read(run), staging.buffer = staging.phase = 0;
    const Work w = work_at(run, dry ? my.begin : t, my.rank);
    if (GROUPED && BIAS) run.bias = bias_of_all + w.group * run.cols;
    if (PINGPONG && (DRY_RUN ? my.wg != 0 : (turn & 1) != my.wg)) { // of one tile, the first warpgroup's
      const ts_u32 next = stage + (ts_u32)(w.last - w.first);
      phase ^= next / STAGES & 1;
      stage = next % STAGES;
      continue;
    }
    staging.first = staging.buffer, staging.piece = -1;
    if (STAGED && !dry && (TRANSPOSED ? my.thread : my.lane) == 0) {
      ts_store_wait_read<0>();
      if (ARRIVALS == 1) ts_expect(arrived(my), TILE_CHUNKS * (TRANSPOSED ? 4 * BUFFER : BUFFER));
      for (int i = 0; i < BUFFERS; i++) ask_for_residual(maps, my, w, staging, i);
    }
    ts_u32 columns_bias[2] = {};
    float rows_bias[MI][2] = {};
    if (SHARED_BIAS && !dry && my.thread < BLOCK_N / 2) {
      const int column = w.n * BLOCK_N + my.thread * 2;
      if (column < run.cols) read_bias(run.bias + column, column + 1 < run.cols, columns_bias);
    }
    if (ROWS_BIAS && !dry) {
#pragma unroll
      for (int i = 0; i < MI * 2; i++) {
        const int row = row_of(my, w) + i / 2 * 64 + my.warp * 16 + (my.lane >> 2) + i % 2 * 8;
        if (row < run.rows) rows_bias[i / 2][i % 2] = ts_float(run.bias[row]);
      }
    }
    Sums sums;
    ts_sums_begin(sums);
    if (PROMOTED)
      for (int i = 0; i < MI * BLOCK_N / 2; i++) sums[i / (BLOCK_N / 2)][i % (BLOCK_N / 2)] = 0;
    // NOTE: mbarriers know two phases only: without an order, a warpgroup that skips a whole turn of the ring
    // meets a stale phase.
    if (PINGPONG && !dry) ts_named_sync(8 + my.wg, 256);
    ts_u32 before = 0;
    for (int k = dry ? w.last : w.first; k < w.last; k++) {
      ts_wait(full(my, stage), phase);
      const ts_u32 a = my.ring + stage * STAGE + (PINGPONG ? 0 : my.wg * MI * A_SLAB);
      const ts_u32 b = RESIDENT ? my.kept + k * B_BYTES : my.ring + stage * STAGE + A_BYTES;
      if (PROMOTED) {
        add_promoted(my, w, a, b, stage, sums);
      } else if (READ_BY_LANES) {
        add_read_by_lanes(my, a, b, stage, k == w.first, sums);
      } else {
        begin_products(a, b, k == w.first, sums);
        if (k > w.first) {
          ts_product_wait<1>();
          release(empty(my, before), my.thread);
        }
        before = stage;
      }
      if (++stage == STAGES) stage = 0, phase ^= 1;
    }
    if (PINGPONG && !dry) ts_named_arrive(8 + (my.wg ^ 1), 256);
    if (SHARED_BIAS) {
      if (!ONCE) ts_named_sync(2 + my.wg, 128); // the last tile's has been read
      if (my.thread < BLOCK_N / 2) put_bias(shared_bias(my) + my.thread * 8, columns_bias);
      ts_named_sync(2 + my.wg, 128);
    }
    if (!PROMOTED && !READ_BY_LANES) {
      ts_product_wait<0>();
      ts_sums_ready(sums);
      if (!dry) release(empty(my, before), my.thread);
    }

    if (LOOKS) add_left_out(run, my, w, sums);
    if (SPLIT > 1) {
      if (!RECEIVE_APART) {
        ts_named_sync(1, WARPS * 32); // the ring is free
        ts_cluster_arrive();
      }
      send(sums, my.own, my.received, my.rank, my.wg * 4 + my.warp, my.lane);
      ts_wait(my.received, 0);
      ts_named_sync(1, WARPS * 32);
      ts_cluster_arrive(); // what the peers sent has arrived
      add_and_store(run, w, my.own, my.rank, my.wg * 4 + my.warp, my.lane);
      ts_cluster_wait(); // no block ends before its copies do
    } else if (STORE == PARTIAL) {
      store_partial(run, my, w, sums);
    } else {
      store(run, maps, my, w, sums, rows_bias, staging, dry);
    }
  }
  if (STORE == MAPPED || STORE == RUN) ts_store_wait();
}
