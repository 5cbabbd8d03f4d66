// `sum`, and the products of a result of backward data that exist: a zero beyond the edge of dy met an Inf or NaN of the
// filter. The result is at (w, h, d) of image n, in `column`; its taps are those from `first` to `last`.
TS_DEVICE float add_existing(const Run &run, float sum, int w, int h, int d, int n, int first, int last, int column) {
  for (int t = first; t < last; t++) {
    const ts_u32 tap = tap_offset[t];
    const int x = w + run.corner_w + (int)(tap & 255), y = h + run.corner_h + (int)(tap >> 8 & 255);
    const int z = d + run.corner_d + (int)(tap >> 16 & 255);
    if (x < 0 || y < 0 || z < 0 || x >= run.in_size_w || y >= run.in_size_h || z >= run.in_size_d) continue;
    const Element *from = run.pixels + n * run.in_n + z * run.in_d + y * run.in_h + x * run.in_w;
    const Element *by = run.filter + tap_filter[t] * run.filter_tap + column;
    for (int k = 0; k < run.channels; k++) sum += ts_float(from[k]) * ts_float(by[k * run.filter_row]);
  }
  return sum;
}
