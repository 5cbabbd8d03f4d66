typedef long long @SYM@_i64;
typedef unsigned int @SYM@_u32;
struct alignas(16) @SYM@_wide {
  @SYM@_i64 v[2];
};
typedef @UNIT@ @SYM@_unit;
typedef @HELD@ @SYM@_held;
template <typename T, int N> struct alignas(sizeof(T) * N) @SYM@_pack {
  T v[N];
};

// A block moves a tile of P x Q units: P are neighbours where they are read, Q where they are written. Units below four
// bytes are gathered to words along q, so that shared memory is read by words. Behind the last unit along q, zeros are
// written as far as filled_q.
extern "C" __global__ void __launch_bounds__(256) @SYM@(@PARAMETERS@) {
  typedef @SYM@_i64 i64;
  typedef @SYM@_u32 u32;
  typedef @SYM@_unit Unit;
  typedef @SYM@_held Held;
  constexpr int P = @P@, Q = @Q@, READ = @READ@, WRITE = @WRITE@;
  constexpr int EACH = sizeof(Held) / sizeof(Unit), BITS = 8 * (int)sizeof(Unit) % 32;
  typedef @SYM@_pack<Unit, READ> Reads;
  typedef @SYM@_pack<Unit, WRITE> Writes;
  // A lane writes READ neighbours: a gap behind them, and lines of PITCH, keep lanes in different banks both ways.
  constexpr int PITCH = @PITCH@, GAP = READ > 2 ? READ : P;
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
@OUTER@
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
        for (int e = 0; e < EACH; e++) word |= (u32)*(const @BITS@ *)&got[e].v[r] << BITS * e;
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
        *(@BITS@ *)&put.v[w] = (@BITS@)(*(const u32 *)&held >> BITS * ((q + w) % EACH));
    }
    *(Writes *)(dst + ((p0 + p) * to_p + (q0 + q))) = put;
  }
}
