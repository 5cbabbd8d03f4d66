// Where the results of `kernel.cu` lie, and what becomes of a sum on its way there. KIND says what the operands are:
// matrices (GEMM); pixels and a filter (CONV); dy and pixels (WRW).
struct Work {
  int m, n, layer, group, slice, first, last;
};
// A layer is a group of a phase.
TS_DEVICE void split_layer(const Run &run, Work &w) {
  w.group = 0;
  if (!GROUPED) return;
  const int phase = ts_quotient(w.layer, run.by_groups);
  w.group = w.layer - phase * run.groups, w.layer = phase;
}

struct Pixel {
  int w, h, d, n;
};
TS_DEVICE Pixel pixel_at(const Run &run, int i) {
  Pixel p;
  const int rest = ts_quotient(i, run.by_base_w);
  p.w = i - rest * run.base_w;
  p.d = 0;
  const int next = ts_quotient(rest, run.by_base_h);
  p.h = rest - next * run.base_h;
  p.n = next;
  if (RANK == 5) {
    p.n = ts_quotient(next, run.by_base_d);
    p.d = next - p.n * run.base_d;
  }
  return p;
}

// --- where results lie, in elements ---
// -1: no such row.
TS_DEVICE ts_i64 row_at(const Run &run, const Work &w, int row) {
  if (row >= run.rows) return -1;
  const ts_i64 group = GROUPED ? w.group * run.out_group : 0;
  if (KIND != CONV || OUT_LINEAR) return group + w.layer * run.out_layer + row * run.out_row;
  const Pixel p = pixel_at(run, row);
  const int rest = ts_quotient(w.layer, run.by_phases_w), pd = ts_quotient(rest, run.by_phases_h);
  const int x = p.w * run.phases_w + w.layer - rest * run.phases_w, y = p.h * run.phases_h + rest - pd * run.phases_h;
  const int z = p.d * run.phases_d + pd;
  if (x >= run.out_size_w || y >= run.out_size_h || z >= run.out_size_d) return -1;
  return group + p.n * run.out_n + z * run.out_d + y * run.out_h + x * run.out_w;
}
TS_DEVICE ts_i64 column_at(const Run &run, int column) {
  if (KIND != WRW) return column < run.cols ? column * run.out_col : -1;
  const int slab = column / SLAB_COLS, tap = ts_quotient(slab, run.by_blocks);
  const int c = (slab - tap * run.blocks) * SLAB_COLS + column % SLAB_COLS;
  return tap < TAPS && c < run.channels ? tap * run.out_tap + c : -1;
}

// Two neighbours of a row, the second one when `both`; where all pairs lie on pairs, that is known.
TS_DEVICE void load_two(const Run &run, const Out *from, float &a, float &b, bool both) {
  if (EVEN && both) {
    ts_load_pair(from, a, b);
  } else {
    a = ts_float(from[0]);
#if ONE_AT_ONCE
    b = ts_float(from[both ? run.out_col : 0]); // not behind a branch: both are under way at once
#else
    if (both) b = ts_float(from[run.out_col]);
#endif
  }
}

// What is added to two neighbours of a row: element `at`, and the next one when `both`.
struct Added {
  float out[2], residual[2];
};
TS_DEVICE Added added_to(const Run &run, ts_i64 at, bool both) {
  Added added = {};
  if (BETA) load_two(run, run.out + at, added.out[0], added.out[1], both);
  if (RESIDUAL) load_two(run, run.residual + at, added.residual[0], added.residual[1], both);
  return added;
}
TS_DEVICE void load_bias(const Run &run, int row, int column, bool both, float (&bias)[2]) {
  bias[0] = bias[1] = ts_float(run.bias[BIAS_OF_ROW ? row : column]);
  if (!BIAS_OF_ROW && both) bias[1] = ts_float(run.bias[column + 1]);
}
TS_DEVICE void finish(const Run &run, Value &a, Value &b, int row, int column, const Added &added, const float (&bias)[2],
                      bool both) {
  if (SCALED) a *= run.alpha, b *= run.alpha;
  if (RESCALED) rescale(run, a, b, BIAS_OF_ROW ? row : column, both);
  if (BETA) a += run.beta * added.out[0], b += run.beta * added.out[1];
  if (BIAS) a += bias[0], b += bias[1];
  if (RESIDUAL) a += added.residual[0], b += added.residual[1];
  a = activate(a), b = activate(b);
}
TS_DEVICE void finish(const Run &run, Value &a, Value &b, int row, int column, ts_i64 at, bool both) {
  float bias[2] = {};
  if (BIAS) load_bias(run, row, column, both, bias);
  finish(run, a, b, row, column, added_to(run, at, both), bias, both);
}
TS_DEVICE void store_two(const Run &run, Value a, Value b, ts_i64 at, bool both) {
  if (EVEN) {
    ts_store_pair(run.out + at, a, b);
  } else {
    ts_narrow(run.out + at, a);
    if (both) ts_narrow(run.out + at + run.out_col, b);
  }
}
