// A block adds a share of the items of some channels. An item is VECTOR neighbouring elements, which a thread reads at
// once: columns of a row of pixels, each of which has its own sum, or pixels of one channel.
namespace ts_mma {
namespace @SYM@_scope {
@HEADER@
constexpr int THREADS = LANES * SLOTS, SUMS = COLUMNS ? VECTOR : 1;
// The threads that share a sum, and how far apart they are.
constexpr int SHARING = COLUMNS ? SLOTS : LANES, APART = COLUMNS ? LANES : 1;
static_assert(!(COLUMNS && EDGES) && AXES >= 1 && AXES <= 4, "rows of columns begin at whole vectors");

typedef Pack<Element, VECTOR> Vector;

// Where an item lies, and which one of its row it is.
TS_MMA_DEVICE i64 place(const Run &run, int item, int &inner) {
  if constexpr (AXES == 1) {
    inner = item;
    return item * run.step_0;
  }
  int next = divided(item, run.multiplier_0, run.shift_0);
  inner = item - next * run.size_0;
  i64 at = inner * run.step_0;
  if constexpr (AXES > 2) {
    const int outer = divided(next, run.multiplier_1, run.shift_1);
    at += (next - outer * run.size_1) * run.step_1, next = outer;
  }
  if constexpr (AXES > 3) {
    const int outer = divided(next, run.multiplier_2, run.shift_2);
    at += (next - outer * run.size_2) * run.step_2, next = outer;
  }
  return at + next * (AXES == 2 ? run.step_1 : AXES == 3 ? run.step_2 : run.step_3);
}

// The elements of a vector that belong to its row have a bit each. Those behind the last whole vector of the tensor do
// not move at once.
constexpr u32 ALL = (1u << VECTOR) - 1, BEHIND = 1u << VECTOR;
struct Item {
  Vector part;
  u32 mask;
};

TS_MMA_DEVICE void load(const Run &run, i64 first, int item, Item &to) {
  int inner;
  i64 at = first + place(run, item, inner);
  to.mask = ALL;
  if constexpr (EDGES) {
    const int before = (int)(at & (VECTOR - 1));
    const i64 rest = run.row + before - (i64)inner * VECTOR; // up to the end of the row
    at -= before;
    if (rest < VECTOR) to.mask = rest > 0 ? ALL >> (VECTOR - (int)rest) : 0;
    if (inner == 0) to.mask &= ALL << before;
    if (at > run.last) to.mask = to.mask ? to.mask | BEHIND : 0, at = run.last;
  }
  to.part = *(const Vector *)(run.dy + at);
}

TS_MMA_DEVICE void add(const Run &run, const Item &item, float (&sums)[SUMS]) {
  float v[VECTOR];
#pragma unroll
  for (int i = 0; i < VECTOR; i++) v[i] = widened(item.part.v[i]);
  if (EDGES && item.mask != ALL) {
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
      if (!(item.mask >> i & 1))
        v[i] = 0.0f;
      else if (item.mask & BEHIND)
        v[i] = widened(run.dy[run.last + VECTOR + i]);
    }
  }
  if constexpr (COLUMNS) {
#pragma unroll
    for (int i = 0; i < VECTOR; i++) sums[i] += v[i];
  } else {
#pragma unroll
    for (int half = VECTOR / 2; half > 0; half /= 2)
#pragma unroll
      for (int i = 0; i < half; i++) v[i] += v[i + half];
    sums[0] += v[0];
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) @SYM@(TS_PARAMETERS) {
  const Run run = TS_RUN;
  wait_previous();
  __shared__ float gathered[SUMS][THREADS];
  const int t = threadIdx.x, lane = t % LANES, slot = t / LANES;
  const int chunk = blockIdx.x * (COLUMNS ? LANES : SLOTS) + (COLUMNS ? lane : slot), sharing = COLUMNS ? slot : lane;
  const i64 begin = (i64)blockIdx.y * run.each;
  const int end = chunk < run.chunks ? (int)(begin + run.each < run.items ? begin + run.each : run.items) : 0;
  const i64 first = chunk * (COLUMNS ? (i64)VECTOR : run.channel_step);
  float sums[SUMS];
#pragma unroll
  for (int i = 0; i < SUMS; i++) sums[i] = 0.0f;
  int item = (int)begin + sharing;
  for (; item < end - (LOADS - 1) * SHARING; item += LOADS * SHARING) {
    Item items[LOADS];
#pragma unroll
    for (int u = 0; u < LOADS; u++) load(run, first, item + u * SHARING, items[u]);
    hold_loads(); // else the compiler puts each one beside its sums
#pragma unroll
    for (int u = 0; u < LOADS; u++) add(run, items[u], sums);
  }
#pragma unroll 2
  for (; item < end; item += SHARING) {
    Item one;
    load(run, first, item, one);
    add(run, one, sums);
  }
#pragma unroll
  for (int i = 0; i < SUMS; i++) gathered[i][t] = sums[i];
#pragma unroll
  for (int count = SHARING; count > 1; count = (count + 1) / 2) {
    const int half = (count + 1) / 2;
    __syncthreads();
    if (sharing + half < count) {
#pragma unroll
      for (int i = 0; i < SUMS; i++) gathered[i][t] += gathered[i][t + half * APART];
    }
  }
  if (sharing || chunk >= run.chunks) return;
#pragma unroll
  for (int i = 0; i < SUMS; i++) {
    const int column = COLUMNS ? chunk * VECTOR + i : chunk;
    if constexpr (WHOLE)
      narrow(run.db[column], gathered[i][t]);
    else
      run.partial[blockIdx.y * (i64)run.columns + column] = gathered[i][t];
  }
}
} // namespace @SYM@_scope
} // namespace ts_mma
