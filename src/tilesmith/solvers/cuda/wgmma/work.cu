// Which tile a block has next, and which steps of its sums.
TS_DEVICE int first_tap(int layer) { return LAYERED ? (int)phase_first[layer] : layer ? TAPS : 0; }

// Planes of the filter that a tile needs, and the one that shares its columns.
TS_DEVICE Planes planes_of(const Run &run, const Work &w) {
  if (!LEAVES_OUT) return planes_between(run, 0, 0);
  const int row = w.m / CAST * CAST * BLOCK_M, end = row + CAST * BLOCK_M;
  const Pixel from = pixel_at(run, row), to = pixel_at(run, (end < run.rows ? end : run.rows) - 1);
  if (from.n != to.n) return Planes{0, PLANES};
  return planes_between(run, from.d * run.step_d + run.corner_d, to.d * run.step_d + run.corner_d);
}

// Tile `t` of the launch: columns of `group` tiles are walked first, so that neighbours share operands in L2.
TS_DEVICE Work work_at(const Run &run, int t, int rank) {
  Work w;
  if (ONCE) { // the grid has an axis for whatever would be divided
    w.slice = 0, w.layer = 0, w.group = 0, w.first = 0, w.last = run.steps;
    w.m = (int)(blockIdx.z * (gridDim.x / CAST) + blockIdx.x / CAST) * CAST_M + (CAST_M > 1 ? rank % CAST_M : 0);
    w.n = (int)blockIdx.y * CAST_N + (CAST_N > 1 ? rank / CAST_M : 0);
    return w;
  }
  const int tiles = run.tiles_m * run.tiles_n;
  if (MIXED) { // long and short sums side by side; shifted, so that no block gets one layer alone
    const int of = ts_quotient(t, run.by_layers), shifted = t - of * run.layers + of;
    w.layer = shifted - ts_quotient(shifted, run.by_layers) * run.layers;
    w.slice = ts_quotient(of, run.by_tiles), t = of - w.slice * tiles;
  } else {
    w.slice = 0, w.layer = 0;
    if (LAYERED || GROUPED || SLICED) {
      const int rest = ts_quotient(t, run.by_tiles);
      t -= rest * tiles;
      w.slice = ts_quotient(rest, run.by_layers), w.layer = rest - w.slice * run.layers;
    }
  }
  split_layer(run, w);
  if (!MIXED && KIND == CONV && LAYERED) w.layer = (int)layer_order[w.layer];
  const int width = run.group * run.tiles_n, group = ts_quotient(t, run.by_width), inside = t - group * width;
  const int left = run.tiles_m - group * run.group, high = left < run.group ? left : run.group;
  w.n = ts_quotient(inside, left < run.group ? run.by_left : run.by_group);
  w.m = (group * run.group + inside - w.n * high) * CAST_M + (CAST_N > 1 ? rank % CAST_M : CAST_M > 1 ? rank : 0);
  if (CAST_N > 1) w.n = w.n * CAST_N + rank / CAST_M;
  int steps = run.steps;
  if (KIND == CONV && LAYERED) {
    const int taps = first_tap(w.layer + 1) - first_tap(w.layer);
    steps = taps ? taps * run.blocks : 1;
  }
  w.first = 0, w.last = steps;
  if (LEAVES_OUT) {
    const Planes p = planes_of(run, w);
    w.last = (p.last - p.first) * PLANE * run.blocks;
  }
  if (SLICED || SPLIT > 1) {
    const int part = w.slice * SPLIT + (SPLIT > 1 ? rank : 0), parts = run.slices * SPLIT;
    const int each = ts_quotient(steps, run.by_parts), more = steps - each * parts;
    w.first = part * each + (part < more ? part : more), w.last = w.first + each + (part < more);
  }
  return w;
}
