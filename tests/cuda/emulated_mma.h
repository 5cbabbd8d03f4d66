/* The functions of codegen/cuda/mma.cuh on the host: what a warp does together, its lanes post and then read. */

#define __align__(n) __attribute__((aligned(n)))
#define __host__

static unsigned char emulated_shared[1 << 18] __attribute__((aligned(128)));
struct emulated_post {
  unsigned words[6];
};
/* Two of each, taken in turn: a lane may post anew before the others have read. */
static emulated_post emulated_posts[2][1024];
static unsigned emulated_turns[1024];

static const emulated_post *posted(const emulated_post &mine) {
  emulated_post *const all = emulated_posts[emulated_turns[emulated_now]++ % 2];
  all[emulated_now] = mine;
  emulated_turn();
  return all + emulated_now / 32 * 32;
}
static inline void __syncwarp() { emulated_turn(); }
static inline int __shfl_sync(unsigned, int v, int lane) { return (int)posted({{(unsigned)v}})[lane].words[0]; }
static inline int __syncthreads_or(int value) {
  static int values[1024];
  values[emulated_now] = value;
  __syncthreads();
  int any = 0;
  for (unsigned i = 0; i < blockDim.x; i++) any |= values[i];
  __syncthreads();
  return any;
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const uint64_t both = (uint64_t)b << 32 | a;
  unsigned v = 0;
  for (int i = 0; i < 4; i++) v |= (unsigned)(both >> (selector >> 4 * i & 7) * 8 & 255) << 8 * i;
  return v;
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  return (unsigned)(((uint64_t)high << 32 | low) >> (by & 31));
}
static inline unsigned __float_as_uint(float f) {
  unsigned v;
  memcpy(&v, &f, 4);
  return v;
}

namespace ts_mma {
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
#define TS_MMA_DEVICE static inline
#define TS_MMA_METHOD inline
#define TS_MMA_CONSTANT static constexpr
struct float4 {
  float x, y, z, w;
};
struct uint4 {
  u32 x, y, z, w;
};
TS_MMA_DEVICE int __dp4a(int a, int b, int sum) {
  for (int i = 0; i < 32; i += 8) sum += (signed char)(a >> i) * (signed char)(b >> i);
  return sum;
}

TS_MMA_DEVICE u32 shared_address(const void *p) { return (u32)((const unsigned char *)p - emulated_shared); }
TS_MMA_DEVICE u64 __cvta_generic_to_global(const void *p) { return (u64)p; }
TS_MMA_DEVICE void *__cvta_global_to_generic(u64 p) { return (void *)p; }
TS_MMA_DEVICE void wait_previous() {} // kernels run one after the other here
TS_MMA_DEVICE void launch_next() {}
template <int BYTES> TS_MMA_DEVICE void copy_async(u32 to, const void *from, int valid) {
  memset(emulated_shared + to, 0, BYTES);
  memcpy(emulated_shared + to, from, valid);
}
TS_MMA_DEVICE void hold_loads() {}
TS_MMA_DEVICE void compute_anew(u32 &) {}
TS_MMA_DEVICE void copy_commit() {}
template <int N> TS_MMA_DEVICE void copy_wait() {}
template <bool TRANSPOSED> TS_MMA_DEVICE void load_tiles(u32 (&r)[4], u32 from) {
  const emulated_post *lanes = posted({{from}});
  const u32 lane = threadIdx.x % 32;
  for (u32 tile = 0; tile < 4; tile++) {
    u16 v[2];
    for (u32 e = 0; e < 2; e++) {
      const u32 row = TRANSPOSED ? lane % 4 * 2 + e : lane / 4, column = TRANSPOSED ? lane / 4 : lane % 4 * 2 + e;
      memcpy(&v[e], emulated_shared + lanes[tile * 8 + row].words[0] + column * 2, 2);
    }
    r[tile] = v[0] | (u32)v[1] << 16;
  }
}
TS_MMA_DEVICE u32 shared_word(u32 from) {
  u32 v;
  memcpy(&v, emulated_shared + from, 4);
  return v;
}
TS_MMA_DEVICE float4 shared_floats4(u32 from) {
  float4 v;
  memcpy(&v, emulated_shared + from, 16);
  return v;
}
TS_MMA_DEVICE void shared_store16(u32 to, u32 a, u32 b, u32 c, u32 d) {
  const u32 v[4] = {a, b, c, d};
  memcpy(emulated_shared + to, v, 16);
}
template <typename T> TS_MMA_DEVICE void shared_store8(u32 to, T a, T b) {
  const T v[2] = {a, b};
  memcpy(emulated_shared + to, v, 8);
}
template <int BYTES> TS_MMA_DEVICE u32 load_bits(const void *from, int valid) {
  u32 v = 0;
  memcpy(&v, from, valid);
  return v;
}

struct bf16 {
  u16 bits;
};
struct fp16 {
  u16 bits;
};
struct tf32 {
  float v;
};
struct int8 {
  signed char v;
};
struct fp8e4m3 {
  unsigned char bits;
};
struct fp8e5m2 {
  unsigned char bits;
};
/* Any small float: fraction bits, exponent bits, whether it has infinities. */
TS_MMA_DEVICE float small_float(u32 b, int m, int e, bool inf) {
  const u32 fraction = b & ((1u << m) - 1), exponent = b >> m & ((1u << e) - 1);
  const int bias = (1 << (e - 1)) - 1;
  float v = exponent   ? __uint_as_float((u32)((int)exponent - bias + 127) << 23 | fraction << (23 - m))
            : fraction ? ldexpf((float)fraction, 1 - bias - m)
                       : 0.0f;
  if (exponent == (1u << e) - 1 && inf) v = fraction ? NAN : INFINITY;
  if (!inf && (b & 0x7f) == 0x7f) v = NAN;
  return b >> (m + e) ? -v : v;
}
TS_MMA_DEVICE u32 nearest(float v, int m, int e, bool inf) {
  const u32 sign = (u32)(__builtin_signbit(v) != 0) << (m + e), top = (1u << e) - 1;
  const int bias = (1 << (e - 1)) - 1;
  if (v != v) return sign | top << m | ((1u << m) - 1);
  int exponent;
  frexpf(v, &exponent);
  const int unit = (exponent - 1 < 1 - bias ? 1 - bias : exponent - 1) - m;
  const float rounded = fabsf(__builtin_isinf(v) ? v : ldexpf(nearbyintf(ldexpf(v, -unit)), unit));
  const float largest = small_float(inf ? (top << m) - 1 : (top << m | ((1u << m) - 2)), m, e, inf);
  if (rounded > largest) return sign | top << m | (inf ? 0 : (1u << m) - 1);
  if (rounded < ldexpf(1, 1 - bias)) return sign | (u32)ldexpf(rounded, bias + m - 1);
  frexpf(rounded, &exponent);
  return sign | (u32)(exponent - 1 + bias) << m | ((u32)ldexpf(rounded, m + 1 - exponent) & ((1u << m) - 1));
}
TS_MMA_DEVICE float widened(bf16 v) { return small_float(v.bits, 7, 8, true); }
TS_MMA_DEVICE float widened(fp16 v) { return small_float(v.bits, 10, 5, true); }
TS_MMA_DEVICE float widened(float v) { return v; }
TS_MMA_DEVICE float widened(tf32 v) { return v.v; }
TS_MMA_DEVICE i64 widened(int8 v) { return v.v; }
TS_MMA_DEVICE i64 widened(int v) { return v; }
TS_MMA_DEVICE float widened(fp8e4m3 v) { return small_float(v.bits, 3, 4, false); }
TS_MMA_DEVICE float widened(fp8e5m2 v) { return small_float(v.bits, 2, 5, true); }
TS_MMA_DEVICE void narrow(bf16 &to, float v) { to.bits = (u16)nearest(v, 7, 8, true); }
TS_MMA_DEVICE void narrow(fp16 &to, float v) { to.bits = (u16)nearest(v, 10, 5, true); }
TS_MMA_DEVICE void narrow(float &to, float v) { to = v; }
TS_MMA_DEVICE void narrow(int &to, i64 v) { to = (int)v; }
TS_MMA_DEVICE void narrow(fp8e4m3 &to, float v) { to.bits = (unsigned char)nearest(v, 3, 4, false); }
TS_MMA_DEVICE void narrow(fp8e5m2 &to, float v) { to.bits = (unsigned char)nearest(v, 2, 5, true); }
template <typename T> TS_MMA_DEVICE void widen_pairs(T, u32 v, u32 &low, u32 &high) {
  u32 wide[4];
  for (int i = 0; i < 4; i++) wide[i] = nearest(widened(T{(unsigned char)(v >> 8 * i)}), 10, 5, true);
  low = wide[0] | wide[1] << 16, high = wide[2] | wide[3] << 16;
}
TS_MMA_DEVICE float added_product(float a, float b, float c) { return fmaf(a, b, c); }
TS_MMA_DEVICE i64 added_product(i64 a, i64 b, i64 c) { return a * b + c; }
TS_MMA_DEVICE void round_to_tf32(u32 &v) {
  if ((v & 0x7f800000) != 0x7f800000) v = (v + 0x1000) & 0xffffe000;
}

template <typename T, int N> struct __align__(sizeof(T) * N) Pack {
  T v[N];
};

template <typename T> TS_MMA_DEVICE Pack<T, 2> narrowed(T, float a, float b) {
  Pack<T, 2> v;
  narrow(v.v[0], a), narrow(v.v[1], b);
  return v;
}
template <typename T> TS_MMA_DEVICE Pack<T, 2> narrowed_relu(T, float a, float b) {
  return narrowed(T(), a < 0.0f ? 0.0f : a, b < 0.0f ? 0.0f : b);
}

/* 16 x 8 sums; K elements of 32 / K bytes. Cut to what the instruction sees of them. */
template <typename T, typename C> TS_MMA_DEVICE void multiply(T, C (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  constexpr u32 SIZE = sizeof(T), K = 32 / SIZE, EACH = 4 / SIZE;
  const emulated_post *lanes = posted({{a[0], a[1], a[2], a[3], b0, b1}});
  const u32 lane = threadIdx.x % 32;
  auto element = [&](u32 line, u32 k, u32 word) {
    const u32 held = lanes[line * 4 + k % (K / 2) / EACH].words[word];
    T v;
    u32 bits = held >> k % EACH * SIZE * 8;
    if (SIZE == 4) bits &= 0xffffe000;
    memcpy(&v, &bits, SIZE);
    return widened(v);
  };
  decltype(widened(T())) left[2][K], right[2][K];
  for (u32 i = 0; i < 2; i++)
    for (u32 k = 0; k < K; k++)
      left[i][k] = element(lane / 4, k, (k >= K / 2) * 2 + i), right[i][k] = element(lane % 4 * 2 + i, k, 4 + (k >= K / 2));
  for (u32 i = 0; i < 4; i++) {
    C sum = c[i];
    for (u32 k = 0; k < K; k++) sum += (C)(left[i / 2][k] * right[i % 2][k]);
    c[i] = sum;
  }
}

/* A lane's sums of a warpgroup's product of 64 x N, whose operands lie in shared memory without a swizzle. */
template <typename T> TS_MMA_DEVICE float emulated_element(u64 matrix, u32 line, u32 k) {
  const u32 from = (u32)(matrix & 0x3fff) + k / 8 * (u32)(matrix >> 16 & 0x3fff) + line / 8 * (u32)(matrix >> 32 & 0x3fff);
  T v;
  memcpy(&v, emulated_shared + from * 16 + line % 8 * 16 + k % 8 * 2, 2);
  return widened(v);
}
template <typename T, int COUNT> TS_MMA_DEVICE void emulated_product(T, float (&sums)[COUNT], u64 a, u64 b, int add) {
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  float left[2][16], right[16];
  for (u32 r = 0; r < 2; r++)
    for (u32 k = 0; k < 16; k++) left[r][k] = emulated_element<T>(a, warp * 16 + lane / 4 + r * 8, k);
  for (u32 j = 0; j < COUNT / 2; j++) {
    for (u32 k = 0; k < 16; k++) right[k] = emulated_element<T>(b, j / 2 * 8 + lane % 4 * 2 + j % 2, k);
    for (u32 r = 0; r < 2; r++) {
      float &sum = sums[j / 2 * 4 + r * 2 + j % 2];
      if (!add) sum = 0.0f;
      for (u32 k = 0; k < 16; k++) sum += left[r][k] * right[k];
    }
  }
}
/* The same with A in registers: 16 rows of each warp. */
template <typename T, int COUNT>
TS_MMA_DEVICE void emulated_product(T, float (&sums)[COUNT], const u32 (&a)[4], u64 b, int add) {
  const u32 lane = threadIdx.x % 32;
  const emulated_post *lanes = posted({{a[0], a[1], a[2], a[3]}});
  for (u32 i = 0; i < COUNT; i++) {
    const u32 group = lane / 4, half = i / 2 % 2, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    float sum = add ? sums[i] : 0.0f;
    for (u32 k = 0; k < 16; k++) {
      T v;
      const u32 two = lanes[group * 4 + k % 8 / 2].words[half + k / 8 * 2];
      v.bits = (u16)(two >> k % 2 * 16);
      sum += widened(v) * emulated_element<T>(b, column, k);
    }
    sums[i] = sum;
  }
}

/* codegen/cuda/bulk.cuh. A barrier lies in its 8 bytes of shared memory. A copy lands as late as it may: when its
   barrier is waited for. */
struct emulated_barrier {
  u16 count, pending;
  int bytes : 31; /* that have not come */
  u32 phase : 1;
};
static emulated_barrier *emulated_count(u32 at, int arrived, int bytes) {
  emulated_barrier *const b = (emulated_barrier *)(emulated_shared + at);
  b->pending -= arrived, b->bytes += bytes;
  if (b->pending == 0 && b->bytes == 0) b->phase ^= 1, b->pending = b->count;
  return b;
}
TS_MMA_DEVICE void ts_barrier_init(u32 at, u32 count) {
  *(emulated_barrier *)(emulated_shared + at) = {(u16)count, (u16)count, 0, 0};
}
TS_MMA_DEVICE void ts_barrier_init_done() {}
TS_MMA_DEVICE void ts_expect(u32 at, u32 bytes) { emulated_count(at, 1, (int)bytes); }
TS_MMA_DEVICE void barrier_arrive(u32 at, u32 count) { emulated_count(at, (int)count, 0); }
/* codegen/cuda/roles.cuh and producers.cuh. Copies by cp.async have landed at once. */
template <int N> TS_MMA_DEVICE void ts_registers_shrink() {}
template <int N> TS_MMA_DEVICE void ts_registers_grow() {}
TS_MMA_DEVICE void copies_arrive(u32 at) { emulated_count(at, 1, 0); }
struct emulated_copy {
  u32 to, bytes, barrier;
  const void *from;
};
static emulated_copy emulated_copies[1 << 14];
static u32 emulated_asked;
static void emulated_land(u32 at) {
  u32 kept = 0;
  for (u32 i = 0; i < emulated_asked; i++) {
    const emulated_copy copy = emulated_copies[i];
    if (copy.barrier != at) {
      emulated_copies[kept++] = copy;
      continue;
    }
    memcpy(emulated_shared + copy.to, copy.from, copy.bytes);
    emulated_count(at, 0, -(int)copy.bytes);
  }
  emulated_asked = kept;
}
TS_MMA_DEVICE void barrier_wait(u32 at, u32 phase) {
  while (((emulated_barrier *)(emulated_shared + at))->phase == (phase & 1)) {
    emulated_land(at);
    if (((emulated_barrier *)(emulated_shared + at))->phase == (phase & 1)) emulated_turn();
  }
}
TS_MMA_DEVICE bool barrier_test(u32 at, u32 phase) {
  emulated_land(at);
  return ((emulated_barrier *)(emulated_shared + at))->phase != (phase & 1);
}
static struct { unsigned arrived, generation; } emulated_groups[16];
TS_MMA_DEVICE void ts_named_sync(u32 id, u32 threads) {
  auto &group = emulated_groups[id];
  const unsigned generation = group.generation;
  if (++group.arrived == threads) group.arrived = 0, group.generation++;
  while (group.generation == generation) emulated_turn();
}
TS_MMA_DEVICE void ts_load_run(u32 to, const void *from, u32 bytes, u32 at) {
  if ((unsigned long)from % 16 || to % 16 || bytes % 16) abort();
  if (emulated_asked == sizeof emulated_copies / sizeof *emulated_copies) abort();
  emulated_copies[emulated_asked++] = {to, bytes, at, from};
}
TS_MMA_DEVICE void ts_store_run(void *to, u32 from, u32 bytes) {
  if ((unsigned long)to % 16 || from % 16 || bytes % 16) abort();
  memcpy(to, emulated_shared + from, bytes);
}
TS_MMA_DEVICE void ts_store_commit() {}
template <int N> TS_MMA_DEVICE void ts_store_wait_read() {}
TS_MMA_DEVICE void ts_store_wait() {}
TS_MMA_DEVICE void ts_async_fence() {}

TS_MMA_DEVICE int divided(int n, u32 m, u32 s) { return (int)((u64)(u32)n * m >> s); }
TS_MMA_DEVICE int smaller(int a, int b) { return a < b ? a : b; }
TS_MMA_DEVICE int larger(int a, int b) { return a > b ? a : b; }
} // namespace ts_mma
