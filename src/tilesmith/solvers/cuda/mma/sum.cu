namespace ts_mma {
namespace @SYM@_scope {
@HEADER@

// Adds the parts of the sums over k, always in the same order, and finishes the results.
extern "C" __global__ void __launch_bounds__(THREADS) @SYM@(TS_PARAMETERS) {
  Results run = {TS_RUN};
  wait_previous();
  constexpr int N = OUT_VECTOR < 4 ? OUT_VECTOR : 4;
  const int quads = run.pitch / 4;
  const i64 at = (i64)blockIdx.x * THREADS + threadIdx.x, slab = (i64)run.layers * run.rows * quads;
  if (at >= slab) return;
  const int line = (int)(at / quads), col = (int)(at - (i64)line * quads) * 4;
  const int layer = (u32)line / (u32)run.rows, row = line - layer * run.rows;
  typedef Pack<Sum, 4> Sums;
  const Sums *from = (const Sums *)run.partial + at;
  Sums sum = from[0];
#pragma unroll 8
  for (int s = 1; s < run.parts; s++) {
    const Sums v = from[s * slab];
#pragma unroll
    for (int q = 0; q < 4; q++) sum.v[q] += v.v[q];
  }
  const int phase = divided(layer, run.groups_m, run.groups_s), group = layer - phase * run.groups;
  const Phase ph = run.phase_of(phase);
  const int place = run.place_of_row(row, ph);
  if (place == NOWHERE) return;
#pragma unroll
  for (int e = 0; e < 4; e += N) {
    Sum v[N];
#pragma unroll
    for (int q = 0; q < N; q++) v[q] = sum.v[e + q];
    run.finish(v, place, col + e, group);
  }
  if constexpr (KIND == BWD) {
    if (run.no_number) {
#pragma unroll 1
      for (int e = 0; e < 4; e++) run.repair(place, row, col + e, group, ph);
    }
  }
}
} // namespace @SYM@_scope
} // namespace ts_mma
