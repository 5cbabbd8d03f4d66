/* The functions of codegen/cuda/hopper.cuh on the host, for 16-bit types: bulk copies and products are done when asked for. */
#define __align__(n) __attribute__((aligned(n)))
#define __host__
#define __grid_constant__
#define TS_DEVICE static inline
typedef unsigned short ts_u16;
typedef unsigned int ts_u32;
typedef unsigned long long ts_u64;
typedef long long ts_i64;
/* As fake_cuda.c encodes it. */
struct __align__(64) ts_map {
  unsigned char *address;
  uint64_t magic;
  int64_t strides[4];
  int dims[5];
  short box[5], channels, pixels;
  signed char steps[5], lower[3], upper[3];
  unsigned char rank, swizzle, nbytes;
};
static_assert(sizeof(ts_map) == 128, "as the driver's");
struct uint4 { unsigned x, y, z, w; };
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
struct int4 { int x, y, z, w; };
struct int2 { int x, y; };
enum { EMULATED_SHARED = 1 << 18 };
static unsigned char emulated_all_shared[EMULATED_CLUSTER][EMULATED_SHARED] __attribute__((aligned(1024)));
#define emulated_shared emulated_all_shared[emulated_rank()]
struct emulated_post { unsigned words[6]; };
static emulated_post emulated_posts[2][EMULATED_THREADS];
static unsigned long emulated_waited;
/* Another thread's turn; what has to end in so many turns has not. */
static void emulated_wait() {
  if (++emulated_waited > 20000000ul) {
    fprintf(stderr, "thread %u of block %u waits for ever\n", threadIdx.x, blockIdx.x);
    abort();
  }
  emulated_turn();
}
/* Lanes of a warp post, and wait until all have. */
static unsigned emulated_count[EMULATED_THREADS];
static const emulated_post *posted(const emulated_post &mine) {
  const unsigned now = emulated_now, turn = ++emulated_count[now];
  emulated_posts[turn % 2][now] = mine;
  for (unsigned i = now / 32 * 32; i < now / 32 * 32 + 32; i++)
    while (emulated_count[i] < turn) emulated_wait();
  return emulated_posts[turn % 2] + now / 32 * 32;
}
static inline void __syncwarp() { posted({}); }
template <typename T> static T __shfl_sync(unsigned, T v, int lane) {
  emulated_post p = {};
  memcpy(p.words, &v, sizeof v);
  const emulated_post *all = posted(p);
  memcpy(&v, all[lane].words, sizeof v);
  return v;
}
template <typename T> static T __shfl_down_sync(unsigned, T v, int by) {
  const int lane = threadIdx.x % 32;
  emulated_post p = {};
  memcpy(p.words, &v, sizeof v);
  const emulated_post *all = posted(p);
  if (lane + by < 32) memcpy(&v, all[lane + by].words, sizeof v);
  return v;
}
static bool __any_sync(unsigned, bool v) {
  const emulated_post *all = posted({{v}});
  bool any = false;
  for (int i = 0; i < 32; i++) any |= all[i].words[0] != 0;
  return any;
}
static inline unsigned __float_as_uint(float f) { unsigned v; memcpy(&v, &f, 4); return v; }
static inline float __int_as_float(int v) { float d; memcpy(&d, &v, 4); return d; }
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const uint64_t both = (uint64_t)b << 32 | a;
  unsigned v = 0;
  for (int i = 0; i < 4; i++) v |= (unsigned)(both >> (selector >> 4 * i & 7) * 8 & 255) << 8 * i;
  return v;
}
static uint4 make_uint4(unsigned a, unsigned b, unsigned c, unsigned d) { return {a, b, c, d}; }
TS_DEVICE int ts_quotient(int n, ts_u64 by) { return (int)((ts_u64)(ts_u32)n * (ts_u32)by >> (ts_u32)(by >> 32)); }
TS_DEVICE void ts_touch(ts_u32) {}
TS_DEVICE ts_u32 ts_shared_address(const void *p) { return (ts_u32)((const unsigned char *)p - emulated_shared); }
struct emulated_barrier { int count, pending, tx; unsigned phase; };
/* A peer's address has its rank in front of it, counted from 1. */
static emulated_barrier emulated_barriers[EMULATED_CLUSTER][EMULATED_SHARED / 8];
static ts_u32 emulated_owner(ts_u32 at) { return at >> 24 ? (at >> 24) - 1 : emulated_rank(); }
static emulated_barrier &emulated_barrier_at(ts_u32 at) {
  emulated_barrier &b = emulated_barriers[emulated_owner(at)][(at & 0xffffff) / 8];
  if (at % 8 || b.count == 0) { fprintf(stderr, "no barrier is at %u\n", at); abort(); }
  return b;
}
static void emulated_check(emulated_barrier &b) {
  if (b.pending == 0 && b.tx == 0) b.pending = b.count, b.phase ^= 1;
  if (b.pending < 0) { fprintf(stderr, "too many arrivals\n"); abort(); }
}
TS_DEVICE void ts_barrier_init(ts_u32 at, ts_u32 count) { emulated_barriers[emulated_rank()][at / 8] = {(int)count, (int)count, 0, 0}; }
TS_DEVICE void ts_barrier_init_done() {}
TS_DEVICE void ts_expect(ts_u32 at, ts_u32 bytes) { auto &b = emulated_barrier_at(at); b.tx += bytes, b.pending--; emulated_check(b); }
TS_DEVICE void ts_arrive(ts_u32 at) { auto &b = emulated_barrier_at(at); b.pending--; emulated_check(b); }
TS_DEVICE void emulated_complete(ts_u32 at, int bytes) { auto &b = emulated_barrier_at(at); b.tx -= bytes; emulated_check(b); }
TS_DEVICE void ts_wait(ts_u32 at, ts_u32 phase) { while (emulated_barrier_at(at).phase == (phase & 1)) emulated_wait(); }
static struct { unsigned arrived, generation, any[2]; } emulated_all_named[EMULATED_CLUSTER][16];
#define emulated_named emulated_all_named[emulated_rank()]
static unsigned emulated_arrive(ts_u32 id, ts_u32 threads, bool flag) {
  auto &n = emulated_named[id];
  const unsigned g = n.generation;
  n.any[g % 2] |= flag;
  if (++n.arrived == threads) n.arrived = 0, n.generation++, n.any[n.generation % 2] = 0;
  return g;
}
TS_DEVICE void ts_named_arrive(ts_u32 id, ts_u32 threads) { emulated_arrive(id, threads, false); }
TS_DEVICE bool ts_named_any(ts_u32 id, ts_u32 threads, bool flag) {
  const unsigned g = emulated_arrive(id, threads, flag);
  while (emulated_named[id].generation == g) emulated_wait();
  return emulated_named[id].any[g % 2];
}
TS_DEVICE void ts_named_sync(ts_u32 id, ts_u32 threads) {
  const unsigned g = emulated_arrive(id, threads, false);
  while (emulated_named[id].generation == g) emulated_wait();
}
TS_DEVICE ts_u32 ts_cluster_rank() { return emulated_rank(); }
/* All threads of a cluster arrive, then wait. */
static unsigned emulated_cluster_arrived, emulated_cluster_turn, emulated_cluster_seen[EMULATED_THREADS];
TS_DEVICE void ts_cluster_arrive() {
  emulated_cluster_seen[emulated_now] = emulated_cluster_turn;
  if (++emulated_cluster_arrived == emulated_in_block * EMULATED_CLUSTER) emulated_cluster_arrived = 0, emulated_cluster_turn++;
}
TS_DEVICE void ts_cluster_wait() { while (emulated_cluster_seen[emulated_now] == emulated_cluster_turn) emulated_wait(); }
TS_DEVICE ts_u32 ts_peer_address(ts_u32 a, ts_u32 rank) {
  if (rank >= EMULATED_CLUSTER) abort();
  return a | (rank + 1) << 24;
}
TS_DEVICE void ts_peer_copy(ts_u32 to, ts_u32 from, ts_u32 bytes, ts_u32 barrier) {
  memcpy(emulated_all_shared[emulated_owner(to)] + (to & 0xffffff), emulated_shared + from, bytes);
  emulated_complete(barrier, (int)bytes);
}
TS_DEVICE void ts_peer_arrive(ts_u32 at) { ts_arrive(at); }
TS_DEVICE bool elected() { return threadIdx.x % 32 == 0; }
TS_DEVICE void ts_map_prefetch(const ts_map *) {}
static unsigned emulated_swizzled(unsigned at, unsigned swizzle) {
  const unsigned mask = swizzle == 128 ? 7 : swizzle == 64 ? 3 : swizzle == 32 ? 1 : 0;
  return at ^ ((at >> 7 & mask) << 4);
}
/* A box counts what lies between the elements that a copy takes. */
static int emulated_count_of(const ts_map *map, int axis) {
  return (map->box[axis] + map->steps[axis] - 1) / map->steps[axis];
}
static void emulated_box(const ts_map *map, ts_u32 at, const int *corner, bool store) {
  int place[5] = {};
  long rows = 1;
  for (int i = 1; i < map->rank; i++) rows *= emulated_count_of(map, i);
  for (long r = 0; r < rows; r++) {
    long rest = r;
    bool inside = true;
    unsigned char *from = map->address;
    for (int i = 1; i < map->rank; i++) {
      const int count = emulated_count_of(map, i);
      place[i] = corner[i] + (int)(rest % count) * map->steps[i], rest /= count;
      inside = inside && place[i] >= 0 && place[i] < map->dims[i];
      from += place[i] * map->strides[i - 1];
    }
    for (int e = 0; e < map->box[0]; e++) {
      const int x = corner[0] + e;
      const bool here = inside && x >= 0 && x < map->dims[0];
      unsigned char *const s = emulated_shared + emulated_swizzled(at + (unsigned)(r * (map->swizzle ? map->swizzle : map->box[0] * map->nbytes) + e * map->nbytes), map->swizzle);
      if (store) { if (here) memcpy(from + x * map->nbytes, s, map->nbytes); }
      else if (here) memcpy(s, from + x * map->nbytes, map->nbytes);
      else memset(s, 0, map->nbytes);
    }
  }
}
static void emulated_load(ts_u32 to, const ts_map *map, ts_u32 barrier, const int *corner) {
  emulated_box(map, to, corner, false);
  int n = map->nbytes;
  for (int i = 0; i < map->rank; i++) n *= emulated_count_of(map, i);
  emulated_complete(barrier, n);
}
TS_DEVICE void ts_load3(ts_u32 to, const ts_map *m, ts_u32 b, int x, int y, int z) { const int c[] = {x, y, z}; emulated_load(to, m, b, c); }
TS_DEVICE void ts_load3_once(ts_u32 to, const ts_map *m, ts_u32 b, int x, int y, int z) { ts_load3(to, m, b, x, y, z); }
TS_DEVICE void ts_load3_cast(ts_u32 to, const ts_map *m, ts_u32 b, int x, int y, int z, ts_u32 blocks) {
  const unsigned mine = emulated_now;
  if (blocks >> EMULATED_CLUSTER || !(blocks >> emulated_rank() & 1)) abort();
  for (unsigned i = 0; i < EMULATED_CLUSTER; i++)
    if (blocks >> i & 1) {
      emulated_now = i * emulated_in_block; /* as the peer itself does */
      ts_load3(to, m, b, x, y, z);
    }
  emulated_now = mine;
}
TS_DEVICE void ts_load4(ts_u32 to, const ts_map *m, ts_u32 b, int x, int y, int z, int w) { const int c[] = {x, y, z, w}; emulated_load(to, m, b, c); }
TS_DEVICE void ts_load5(ts_u32 to, const ts_map *m, ts_u32 b, int x, int y, int z, int w, int v) { const int c[] = {x, y, z, w, v}; emulated_load(to, m, b, c); }
TS_DEVICE void ts_store3(const ts_map *m, ts_u32 f, int x, int y, int z) { const int c[] = {x, y, z}; emulated_box(m, f, c, true); }
TS_DEVICE void ts_store4(const ts_map *m, ts_u32 f, int x, int y, int z, int w) { const int c[] = {x, y, z, w}; emulated_box(m, f, c, true); }
TS_DEVICE void ts_store5(const ts_map *m, ts_u32 f, int x, int y, int z, int w, int v) { const int c[] = {x, y, z, w, v}; emulated_box(m, f, c, true); }
static void emulated_pixels(ts_u32 to, const ts_map *map, ts_u32 barrier, int channel, int *at, ts_u32 tap) {
  const int spatial = map->rank - 2;
  for (int p = 0; p < map->pixels; p++) {
    bool inside = at[spatial] >= 0 && at[spatial] < map->dims[spatial + 1];
    unsigned char *from = map->address + at[spatial] * map->strides[spatial];
    for (int i = 0; i < spatial; i++) {
      const int x = at[i] + (int)(tap >> 8 * i & 255);
      inside = inside && x >= 0 && x < map->dims[i + 1];
      from += x * map->strides[i];
    }
    for (int e = 0; e < map->channels; e++) {
      unsigned char *const s = emulated_shared + emulated_swizzled(to + (unsigned)(p * map->channels + e) * map->nbytes, map->swizzle);
      if (inside && channel + e < map->dims[0]) memcpy(s, from + (channel + e) * map->nbytes, map->nbytes);
      else memset(s, 0, map->nbytes);
    }
    int i = 0;
    for (; i < spatial; i++) {
      at[i] += map->steps[i + 1];
      if (at[i] < map->dims[i + 1] + map->upper[i]) break;
      at[i] = map->lower[i];
    }
    if (i == spatial) at[spatial]++;
  }
  emulated_complete(barrier, map->nbytes * map->channels * map->pixels);
}
TS_DEVICE void ts_load_pixels4(ts_u32 to, const ts_map *m, ts_u32 b, int c, int w, int h, int n, ts_u32 tap) { int at[] = {w, h, n}; emulated_pixels(to, m, b, c, at, tap); }
TS_DEVICE void ts_load_pixels5(ts_u32 to, const ts_map *m, ts_u32 b, int c, int w, int h, int d, int n, ts_u32 tap) { int at[] = {w, h, d, n}; emulated_pixels(to, m, b, c, at, tap); }
TS_DEVICE void ts_store_run(void *to, ts_u32 from, ts_u32 bytes) {
  if ((unsigned long)to % 16 || from % 16 || bytes % 16) abort();
  memcpy(to, emulated_shared + from, bytes);
}
TS_DEVICE void ts_store_commit() {}
template <int N> TS_DEVICE void ts_store_wait_read() {}
TS_DEVICE void ts_store_wait() {}
TS_DEVICE void ts_async_fence() {}
TS_DEVICE void ts_launch_next() {}
TS_DEVICE void ts_wait_previous() {}
/* Registers of a block: those that grow wait for what others have given. */
static int emulated_free[EMULATED_CLUSTER];
static int emulated_registers() { return (int)(65536 / emulated_in_block & ~7u); }
template <int N> TS_DEVICE void ts_registers_shrink() { emulated_free[emulated_rank()] += emulated_registers() - N; }
template <int N> TS_DEVICE void ts_registers_grow() {
  const int more = N - emulated_registers();
  while (emulated_free[emulated_rank()] < more) emulated_wait();
  emulated_free[emulated_rank()] -= more;
}
/* The warps of a warpgroup multiply together. */
static struct { unsigned arrived, generation; } emulated_all_groups[EMULATED_CLUSTER][8];
#define emulated_groups emulated_all_groups[emulated_rank()]
static void emulated_together() {
  auto &g = emulated_groups[threadIdx.x / 128];
  const unsigned now = g.generation;
  if (++g.arrived == 128) g.arrived = 0, g.generation++;
  while (g.generation == now) emulated_wait();
}
TS_DEVICE void ts_product_fence() { emulated_together(); }
TS_DEVICE void ts_product_commit() {}
template <int N> TS_DEVICE void ts_product_wait() { emulated_together(); }
template <typename Sums> TS_DEVICE void ts_sums_begin(Sums &) {}
template <typename Sums> TS_DEVICE void ts_sums_ready(Sums &) {}
TS_DEVICE constexpr ts_u64 ts_descriptor(ts_u32 leading, ts_u32 stride, ts_u32 swizzle) {
  return (ts_u64)(swizzle == 128 ? 1 : swizzle == 64 ? 2 : 3) << 62 | (ts_u64)(stride >> 4) << 32 | (ts_u64)(leading >> 4) << 16;
}
TS_DEVICE ts_u64 ts_at(ts_u64 d, ts_u32 address) { return d | (ts_u64)((address & 0x3ffff) >> 4); }
struct ts_bf16 { ts_u16 bits; };
struct ts_fp16 { ts_u16 bits; };
TS_DEVICE float ts_float(ts_bf16 v) { return __uint_as_float((ts_u32)v.bits << 16); }
TS_DEVICE float ts_float(ts_fp16 v) { _Float16 f; memcpy(&f, &v.bits, 2); return (float)f; }
TS_DEVICE float ts_float(float v) { return v; }
/* Of 8 bits: a sign, four bits of exponent (bias 7) and three more; 0x7f is NaN. */
struct ts_e4m3 { unsigned char bits; };
TS_DEVICE float ts_float(ts_e4m3 v) {
  const int e = v.bits >> 3 & 15, m = v.bits & 7;
  const float size = (v.bits & 0x7f) == 0x7f ? __builtin_nanf("") : e ? __uint_as_float((e + 120) << 23 | m << 20) : m * 0x1p-9f;
  return v.bits & 0x80 ? -size : size;
}
/* The nearest, of two the even one; beyond the largest and its half step, NaN. */
TS_DEVICE void ts_narrow(ts_e4m3 *to, float v) {
  unsigned char found = 0x7f;
  for (unsigned char b = 0; b < 0x7f && fabsf(v) <= 464.0f; b++) {
    const float now = fabsf(ts_float(ts_e4m3{b}) - fabsf(v)), best = found == 0x7f ? 1e9f : fabsf(ts_float(ts_e4m3{found}) - fabsf(v));
    if (now < best || (now == best && b % 2 == 0)) found = b;
  }
  to->bits = found | (v < 0 ? 0x80 : 0);
}
TS_DEVICE void ts_narrow(ts_bf16 *to, float v) {
  unsigned b = __float_as_uint(v);
  to->bits = v != v ? 0x7fff : (ts_u16)((b + 0x7fff + (b >> 16 & 1)) >> 16);
}
TS_DEVICE void ts_narrow(ts_fp16 *to, float v) { _Float16 f = (_Float16)v; memcpy(&to->bits, &f, 2); }
TS_DEVICE void ts_narrow(float *to, float v) { *to = v; }
template <typename T> TS_DEVICE ts_u32 ts_pack(T, float low, float high) {
  if constexpr (sizeof(T) == 2) { T a, b; ts_narrow(&a, low), ts_narrow(&b, high); return a.bits | (ts_u32)b.bits << 16; }
  else return 0; // never called
}
static void emulated_put(ts_u32 to, const ts_u32 *v, int count, bool transposed) {
  const emulated_post *all = posted({{to}});
  const int lane = threadIdx.x % 32, row = lane / 4, pair = lane % 4;
  for (int m = 0; m < count; m++)
    for (int e = 0; e < 2; e++) {
      const ts_u16 half = (ts_u16)(v[m] >> 16 * e);
      const int column = pair * 2 + e;
      memcpy(emulated_shared + (transposed ? all[m * 8 + column].words[0] + row * 2 : all[m * 8 + row].words[0] + column * 2), &half, 2);
    }
  posted({});
}
static void emulated_get(ts_u32 from, ts_u32 *v, int count, bool transposed) {
  const emulated_post *all = posted({{from}});
  const int lane = threadIdx.x % 32, row = lane / 4, pair = lane % 4;
  for (int m = 0; m < count; m++) {
    v[m] = 0;
    for (int e = 0; e < 2; e++) {
      ts_u16 half;
      const int column = pair * 2 + e;
      memcpy(&half, emulated_shared + (transposed ? all[m * 8 + column].words[0] + row * 2 : all[m * 8 + row].words[0] + column * 2), 2);
      v[m] |= (ts_u32)half << 16 * e;
    }
  }
  posted({});
}
template <typename T, bool TRANSPOSED> TS_DEVICE void ts_put_sums(ts_u32 to, const float *v, bool two) {
  ts_u32 r[4] = {ts_pack(T(), v[0], v[1]), ts_pack(T(), v[2], v[3])};
  if (two) r[2] = ts_pack(T(), v[4], v[5]), r[3] = ts_pack(T(), v[6], v[7]);
  emulated_put(to, r, two ? 4 : 2, TRANSPOSED);
}
template <typename T> TS_DEVICE void ts_unpack(T, ts_u32 v, float &low, float &high) {
  if constexpr (sizeof(T) < 4) { T a, b; a.bits = v, b.bits = v >> 8 * sizeof(T); low = ts_float(a), high = ts_float(b); }
}
template <typename T> TS_DEVICE void ts_add_pair(T, ts_u32 v, float *sums) { float a, b; ts_unpack(T(), v, a, b); sums[0] += a, sums[1] += b; }
template <typename T, bool TRANSPOSED> TS_DEVICE void ts_add_stored(ts_u32 from, float *v, bool two) {
  ts_u32 r[4];
  emulated_get(from, r, two ? 4 : 2, TRANSPOSED);
  for (int i = 0; i < (two ? 4 : 2); i++) ts_add_pair(T(), r[i], v + 2 * i);
}
TS_DEVICE ts_u32 ts_shared_load(ts_u32 from) { ts_u32 v; memcpy(&v, emulated_shared + from, 4); return v; }
template <typename T> TS_DEVICE void ts_shared_store(ts_u32 to, T v) { memcpy(emulated_shared + to, &v, sizeof v); }
TS_DEVICE ts_u32 ts_shared_load_half(ts_u32 from) { ts_u16 v; memcpy(&v, emulated_shared + from, 2); return v; }
TS_DEVICE void ts_shared_load2(ts_u32 from, float &a, float &b) { memcpy(&a, emulated_shared + from, 4), memcpy(&b, emulated_shared + from + 4, 4); }
TS_DEVICE uint4 ts_shared_load16(ts_u32 from) { uint4 v; memcpy(&v, emulated_shared + from, 16); return v; }
TS_DEVICE void ts_shared_store4(ts_u32 to, const float *v) { memcpy(emulated_shared + to, v, 16); }
TS_DEVICE void ts_shared_load4(ts_u32 from, float (&v)[4]) { memcpy(v, emulated_shared + from, 16); }
TS_DEVICE void ts_shared_store2(ts_u32 to, int a, int b) { ts_shared_store(to, a), ts_shared_store(to + 4, b); }
TS_DEVICE void ts_shared_store2(ts_u32 to, float a, float b) { ts_shared_store(to, a), ts_shared_store(to + 4, b); }
template <typename T> TS_DEVICE void ts_load_pair(const T *from, float &low, float &high) {
  if ((unsigned long)from % (2 * sizeof(T))) abort();
  low = ts_float(from[0]), high = ts_float(from[1]);
}
template <typename T> TS_DEVICE void ts_store_pair(T *to, float low, float high) { ts_narrow(to, low), ts_narrow(to + 1, high); }
template <typename T> TS_DEVICE float ts_fresh(const T *from) { return ts_float(*from); }
template <typename T> TS_DEVICE ts_u32 ts_bytes(T, float low, float high) {
  if constexpr (sizeof(T) == 1) { T a, b; ts_narrow(&a, low), ts_narrow(&b, high); return a.bits | b.bits << 8; }
  else return 0; /* never called */
}
/* A cluster begins: called by each of its threads. */
static unsigned long emulated_block = ~0ul;
static void emulated_begin() {
  const unsigned long at = (blockIdx.x + gridDim.x * (blockIdx.y + (unsigned long)gridDim.y * blockIdx.z)) / EMULATED_CLUSTER;
  if (emulated_block == at) return;
  emulated_block = at, emulated_waited = 0;
  memset(emulated_barriers, 0, sizeof emulated_barriers);
  memset(emulated_all_named, 0, sizeof emulated_all_named);
  memset(emulated_all_groups, 0, sizeof emulated_all_groups);
  memset(emulated_count, 0, sizeof emulated_count);
  memset(emulated_all_shared, 0xff, sizeof emulated_all_shared);
  memset(emulated_free, 0, sizeof emulated_free);
  emulated_cluster_arrived = 0;
}
static float2 make_float2(float a, float b) { return {a, b}; }
/* DEPTH elements of a row. Those of `columns`, whose rows are contiguous, have 16 bits. */
template <typename T, int DEPTH> static void emulated_row(ts_u64 d, int row, bool columns, float (&to)[DEPTH]) {
  const unsigned swizzle = (d >> 62) == 1 ? 128 : (d >> 62) == 2 ? 64 : 32;
  const unsigned start = (unsigned)(d & 0x3fff) << 4, leading = (unsigned)(d >> 16 & 0x3fff) << 4, stride = (unsigned)(d >> 32 & 0x3fff) << 4;
  const unsigned char *const shared = emulated_shared;
  unsigned from;
  if (columns) from = start + row / (int)(swizzle / 2) * leading + row % (int)(swizzle / 2) * 2;
  else from = start + row / 8 * stride + row % 8 * swizzle;
  for (int k = 0; k < DEPTH; k++) {
    const unsigned at = from + (columns ? k / 8 * stride + k % 8 * swizzle : k * (int)sizeof(T));
    T v;
    memcpy(&v, shared + emulated_swizzled(at, swizzle), sizeof v);
    to[k] = ts_float(v);
  }
}
template <typename T, int N> static void emulated_product(float (&sums)[N], ts_u64 a, ts_u64 b, int add, bool a_columns, bool b_columns) {
  constexpr int DEPTH = 32 / sizeof(T);
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  float left[2][DEPTH];
  for (int r = 0; r < 2; r++) emulated_row<T>(a, warp * 16 + lane / 4 + 8 * r, a_columns, left[r]);
  for (int j = 0; j < N / 4; j++)
    for (int e = 0; e < 2; e++) {
      float right[DEPTH];
      emulated_row<T>(b, j * 8 + lane % 4 * 2 + e, b_columns, right);
      for (int r = 0; r < 2; r++) {
        float sum = add ? sums[4 * j + 2 * r + e] : 0.0f;
        for (int k = 0; k < DEPTH; k++) sum += left[r][k] * right[k];
        sums[4 * j + 2 * r + e] = sum;
      }
    }
}
/* The same with A in registers: 16 rows of each warp. */
template <typename T, int N> static void emulated_product(float (&sums)[N], const ts_u32 (&a)[4], ts_u64 b, int add, bool b_columns) {
  const int lane = threadIdx.x % 32;
  float left[2][16];
  const emulated_post *lanes = posted({{a[0], a[1], a[2], a[3]}});
  for (int r = 0; r < 2; r++)
    for (int k = 0; k < 16; k++) {
      T v;
      v.bits = (ts_u16)(lanes[lane / 4 * 4 + k % 8 / 2].words[r + k / 8 * 2] >> k % 2 * 16);
      left[r][k] = ts_float(v);
    }
  for (int i = 0; i < N; i++) {
    float right[16], sum = add ? sums[i] : 0.0f;
    emulated_row<T>(b, i / 4 * 8 + lane % 4 * 2 + i % 2, b_columns, right);
    for (int k = 0; k < 16; k++) sum += left[i / 2 % 2][k] * right[k];
    sums[i] = sum;
  }
}
