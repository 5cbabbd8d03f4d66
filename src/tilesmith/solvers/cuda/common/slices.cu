// Adding up quads of partial sums, always in the same order: GROUPS threads of a block share the slices of each quad.
constexpr int WIDTH = THREADS / GROUPS, EACH = (SLICES + GROUPS - 1) / GROUPS;

// The thread's share of the slices' quads `i`, which lie `step` quads apart: AT_ONCE loads (0: all) are
// under way.
template <int AT_ONCE = 0, typename Quad>
TS_DEVICE void add_slices(const Quad *from, ts_i64 step, ts_i64 i, int share, bool wanted, Quad &sum) {
  constexpr int ROUND = AT_ONCE ? AT_ONCE : EACH;
  Quad parts[ROUND];
  sum = Quad{};
#pragma unroll
  for (int first = 0; first < EACH; first += ROUND) {
#pragma unroll
    for (int k = 0; k < ROUND; k++) {
      const int s = (first + k) * GROUPS + share;
      const bool exists = (!AT_ONCE || first + k < EACH) && s < SLICES && wanted;
      parts[k] = exists ? __ldcs(from + s * step + i) : Quad{};
    }
#pragma unroll
    for (int k = 0; k < ROUND; k++) sum.x += parts[k].x, sum.y += parts[k].y, sum.z += parts[k].z, sum.w += parts[k].w;
  }
}
// The shares of the other threads.
template <typename Quad> TS_DEVICE void add_shares(const Quad (&gathered)[GROUPS][WIDTH], int at, Quad &sum) {
#pragma unroll
  for (int k = 1; k < GROUPS; k++) {
    const Quad v = gathered[k][at];
    sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
  }
}
