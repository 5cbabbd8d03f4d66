namespace ts_mma {
namespace @SYM@_scope {
@CONSTANTS@
constexpr int NOWHERE = -1;

@FINISH@

// Adds the parts of the sums over k, always in the same order, and finishes the results.
extern "C" __global__ void __launch_bounds__(256) @SYM@(@PARAMETERS@) {
@UNPACK@
@PLACE@
  wait_previous();
  constexpr int N = OUT_VECTOR < 4 ? OUT_VECTOR : 4;
  const int layers = groups * phase_d * phase_h * phase_w, quads = pitch / 4;
  const i64 at = (i64)blockIdx.x * 256 + threadIdx.x, slab = (i64)layers * rows * quads;
  if (at >= slab) return;
  const int line = (int)(at / quads), col = (int)(at - (i64)line * quads) * 4, layer = line / rows, row = line - layer * rows;
  typedef Pack<Sum, 4> Sums;
  const Sums *from = (const Sums *)partial + at;
  Sums sum = from[0];
#pragma unroll 8
  for (int s = 1; s < parts; s++) {
    const Sums v = from[s * slab];
#pragma unroll
    for (int q = 0; q < 4; q++) sum.v[q] += v.v[q];
  }
  const int group = layer % groups, phase = layer / groups;
  const Phase ph = {phase / (phase_h * phase_w), phase / phase_w % phase_h, phase % phase_w};
  const int place = place_of_row(row, ph);
  if (place == NOWHERE) return;
#pragma unroll
  for (int e = 0; e < 4; e += N) {
    Sum v[N];
#pragma unroll
    for (int q = 0; q < N; q++) v[q] = sum.v[e + q];
    finish(v, place, row, col + e, group, ph);
  }
  if constexpr (KIND == BWD) {
    if (no_number) {
#pragma unroll 1
      for (int e = 0; e < 4; e++) repair(place, row, col + e, group, ph);
    }
  }
}
} // namespace @SYM@_scope
} // namespace ts_mma
