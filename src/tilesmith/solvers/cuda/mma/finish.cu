// What the kernel and the sum of its parts share: pixels, taps, and how a sum becomes a result.
struct Pixel {
  int n, d, h, w;
};
struct Phase {
  int d, h, w;
};
// The taps of a phase in one axis: how many, where the first lies, and the way to the next.
struct AxisTaps {
  int count, at, at_step, index, index_step;
};

TS_MMA_DEVICE Pixel pixel_of(int i, const Divisor &w, const Divisor &h, const Divisor &d) {
  Pixel p;
  const int line = divided(i, w), plane = divided(line, h);
  p.w = i - line * w.d, p.h = line - plane * h.d;
  p.n = plane, p.d = 0;
  if (DEEP) {
    p.n = divided(plane, d);
    p.d = plane - p.n * d.d;
  }
  return p;
}

TS_MMA_DEVICE bool lies_inside(int d, int h, int w, int size_d, int size_h, int size_w) {
  const bool flat = (u32)h < (u32)size_h && (u32)w < (u32)size_w;
  return DEEP ? flat && (u32)d < (u32)size_d : flat && d >= 0;
}

// Backward data: those taps r for which phase + pad - r * dilation is a multiple of the stride.
TS_MMA_DEVICE AxisTaps axis_taps(int filter, int stride, int pad, int dilation, int phase) {
  if (KIND != BWD) return {filter, -pad, dilation, 0, 1};
  int first = 0;
  while (first < filter && (phase + pad - first * dilation) % stride) first++;
  int period = 1;
  while (period * dilation % stride) period++;
  const int count = first < filter ? (filter - 1 - first) / period + 1 : 0;
  return {count, (phase + pad - first * dilation) / stride, -(period * dilation / stride), first, period};
}

@ACTIVATION@
