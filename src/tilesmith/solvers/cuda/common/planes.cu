// Planes of the filter that meet planes of pixels, of results whose windows begin at planes `low` to `high`. One at least:
// the sums begin with its products.
constexpr int PLANE = TAPS / PLANES;
struct Planes {
  int first, last;
};
TS_DEVICE Planes planes_between(const Run &run, int low, int high) {
  Planes p = {0, PLANES};
  if (!LEAVES_OUT) return p;
  while (p.first < PLANES - 1 && high + (int)(tap_offset[p.first * PLANE] >> 16) < 0) p.first++;
  while (p.last > p.first + 1 && low + (int)(tap_offset[(p.last - 1) * PLANE] >> 16) >= run.in_size_d) p.last--;
  return p;
}
// What the planes that are left out add to a channel's sums: 0, or NaN.
TS_DEVICE float left_out(const Run &run, const Planes &p, int channel, int channels) {
  float sum = 0.0f;
  for (int i = 0; i < PLANES; i++)
    if ((i < p.first || i >= p.last) && channel < channels) sum += run.beyond[i * channels + channel];
  return sum;
}
