typedef long long ts_layout_b16_64x64x8x8__sm_90a_golden_i64;
typedef unsigned int ts_layout_b16_64x64x8x8__sm_90a_golden_u32;
struct alignas(16) ts_layout_b16_64x64x8x8__sm_90a_golden_wide {
  ts_layout_b16_64x64x8x8__sm_90a_golden_i64 v[2];
};
typedef unsigned short ts_layout_b16_64x64x8x8__sm_90a_golden_unit;
typedef unsigned int ts_layout_b16_64x64x8x8__sm_90a_golden_held;
template <typename T, int N> struct alignas(sizeof(T) * N) ts_layout_b16_64x64x8x8__sm_90a_golden_pack {
  T v[N];
};

// A block moves a tile of P x Q units: P are neighbours where they are read, Q where they are written. Units below four
// bytes are gathered to words along q, so that shared memory is read by words. Behind the last unit along q, zeros are
// written as far as filled_q.
extern "C" __global__ void __launch_bounds__(256) ts_layout_b16_64x64x8x8__sm_90a_golden(const void *from, void *to, long long tiles_p, long long tiles_q, long long size_p, long long size_q, long long filled_q, long long from_q, long long to_p, long long size_0, long long from_0, long long to_0) {
  typedef ts_layout_b16_64x64x8x8__sm_90a_golden_i64 i64;
  typedef ts_layout_b16_64x64x8x8__sm_90a_golden_u32 u32;
  typedef ts_layout_b16_64x64x8x8__sm_90a_golden_unit Unit;
  typedef ts_layout_b16_64x64x8x8__sm_90a_golden_held Held;
  constexpr int P = 64, Q = 64, READ = 8, WRITE = 8;
  constexpr int EACH = sizeof(Held) / sizeof(Unit), BITS = 8 * (int)sizeof(Unit) % 32;
  typedef ts_layout_b16_64x64x8x8__sm_90a_golden_pack<Unit, READ> Reads;
  typedef ts_layout_b16_64x64x8x8__sm_90a_golden_pack<Unit, WRITE> Writes;
  // A lane writes READ neighbours: a gap behind them, and lines of PITCH, keep lanes in different banks both ways.
  constexpr int PITCH = 73, GAP = READ > 2 ? READ : P;
  __shared__ Held tile[Q / EACH][PITCH];

#if __CUDA_ARCH__ >= 900 // it may have begun before the kernel ahead has ended
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  u32 item = blockIdx.x;
  const u32 p0 = item % (u32)tiles_p * P;
  item /= (u32)tiles_p;
  const u32 q0 = item % (u32)tiles_q * Q;
  item /= (u32)tiles_q;
  i64 from_at = 0, to_at = 0;
  from_at += item % (u32)size_0 * from_0, to_at += item % (u32)size_0 * to_0;
  item /= (u32)size_0;
  const Unit *const src = (const Unit *)from + from_at;
  Unit *const dst = (Unit *)to + to_at;
  const u32 np = (u32)size_p - p0, nq = (u32)filled_q - q0;

#pragma unroll
  for (int i = threadIdx.x; i < P / READ * (Q / EACH); i += 256) {
    const int p = i % (P / READ) * READ, line = i / (P / READ);
    Reads got[EACH] = {};
#pragma unroll
    for (int e = 0; e < EACH; e++) {
      const u32 q = line * EACH + e;
      if (p < np && q0 + q < (u32)size_q) got[e] = *(const Reads *)(src + ((i64)(p0 + p) + (q0 + q) * from_q));
    }
#pragma unroll
    for (int r = 0; r < READ; r++) {
      if constexpr (EACH == 1) {
        tile[line][p + r + p / GAP] = *(const Held *)&got[0].v[r];
      } else {
        u32 word = 0;
#pragma unroll
        for (int e = 0; e < EACH; e++) word |= (u32)*(const unsigned short *)&got[e].v[r] << BITS * e;
        *(u32 *)&tile[line][p + r + p / GAP] = word;
      }
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = threadIdx.x; i < P * (Q / WRITE); i += 256) {
    const int q = i % (Q / WRITE) * WRITE, p = i / (Q / WRITE);
    if (p >= np || q >= nq) continue;
    Writes put;
#pragma unroll
    for (int w = 0; w < WRITE; w++) {
      const Held held = tile[(q + w) / EACH][p + p / GAP];
      if constexpr (EACH == 1)
        put.v[w] = *(const Unit *)&held;
      else
        *(unsigned short *)&put.v[w] = (unsigned short)(*(const u32 *)&held >> BITS * ((q + w) % EACH));
    }
    *(Writes *)(dst + ((p0 + p) * to_p + (q0 + q))) = put;
  }
}
