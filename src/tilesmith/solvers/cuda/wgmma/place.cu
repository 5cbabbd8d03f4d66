// Where the results of `kernel.cu` lie, and what becomes of a sum on its way there. KIND says what the operands are:
// matrices (GEMM); pixels and a filter (CONV); dy and pixels (WRW).
constexpr bool BIAS_OF_ROW = TRANSPOSED;

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

// Two neighbours of a row: element `at`, and the next one when `both`.
TS_DEVICE void finish(const Run &run, Value &a, Value &b, int row, int column, ts_i64 at, bool both) {
  if (SCALED) a *= run.alpha, b *= run.alpha;
  if (RESCALED) rescale(run, a, b, BIAS_OF_ROW ? row : column, both);
  if (BETA) {
    a += run.beta * ts_float(run.out[at]);
    if (both) b += run.beta * ts_float(run.out[at + run.out_col]);
  }
  if (BIAS) {
    a += ts_float(run.bias[BIAS_OF_ROW ? row : column]);
    if (both) b += ts_float(run.bias[BIAS_OF_ROW ? row : column + 1]);
  }
  if (RESIDUAL) {
    float p = 0.0f, q = 0.0f;
    if (EVEN) {
      ts_load_pair(run.residual + at, p, q);
    } else {
      p = ts_float(run.residual[at]);
      if (both) q = ts_float(run.residual[at + run.out_col]);
    }
    a += p, b += q;
  }
  a = activate(a), b = activate(b);
}
TS_DEVICE void store_two(const Run &run, Value a, Value b, ts_i64 at, bool both) {
  if (EVEN) {
    ts_store_pair(run.out + at, a, b);
  } else {
    ts_narrow(run.out + at, a);
    if (both) ts_narrow(run.out + at + run.out_col, b);
  }
}
// Finishes a quad of sums and stores it: two neighbours of a row, and of the eighth row from there. `low` and `high` are
// where the rows lie.
template <bool STORED>
TS_DEVICE void finish_quad(const Run &run, Sum &a, Sum &b, Sum &c, Sum &d, int row, int column, ts_i64 low,
                           ts_i64 high) {
  const ts_i64 off = column_at(run, column);
  const bool both = EVEN || column_at(run, column + 1) >= 0;
  if (off >= 0 && low >= 0) {
    Value first = a, second = b;
    finish(run, first, second, row, column, low + off, both);
    if (STORED) store_two(run, first, second, low + off, both);
    else a = first, b = second;
  }
  if (off >= 0 && high >= 0) {
    Value first = c, second = d;
    finish(run, first, second, row + 8, column, high + off, both);
    if (STORED) store_two(run, first, second, high + off, both);
    else c = first, d = second;
  }
}
