// A slab: SLAB rows that lie densely in memory, a multiple of 16 bytes whatever their width. In shared memory rows of
// whole chunks of 16 bytes can lie PAD elements apart.
template <typename T, int WIDTH, int PAD> TS_MMA_CONSTANT int bytes_of_slab() {
  return (SLAB * (WIDTH + PAD) * (int)sizeof(T) + 15) / 16 * 16;
}
template <typename T, int WIDTH, int PAD> TS_MMA_DEVICE int place_of_chunk(int chunk) {
  if constexpr (PAD)
    return chunk * 16 + chunk / (WIDTH * (int)sizeof(T) / 16) * (PAD * (int)sizeof(T));
  else
    return chunk * 16;
}
// How many of a slab's bytes exist.
template <int ROW> TS_MMA_DEVICE int bytes_left(i64 slab, i64 rows) {
  const i64 left = rows - slab * SLAB;
  return left >= SLAB ? SLAB * ROW : left > 0 ? (int)left * ROW : 0;
}
template <int THREADS, int WIDTH, int PAD>
TS_MMA_DEVICE void load_slab(unsigned char *memory, int to, const Element *from, i64 slab, i64 rows, int thread) {
  constexpr int ROW = WIDTH * sizeof(Element), COUNT = SLAB * ROW / 16;
  const int left = bytes_left<ROW>(slab, rows);
  if (left == 0) return;
  const unsigned char *const first = (const unsigned char *)from + slab * (SLAB * ROW);
  const u32 base = shared_address(memory) + to;
#pragma unroll
  for (int i = 0; i < COUNT; i += THREADS) {
    const int chunk = i + thread;
    if (i + THREADS <= COUNT || chunk < COUNT)
      copy_async<16>(base + place_of_chunk<Element, WIDTH, PAD>(chunk), first + chunk * 16,
                     smaller(larger(left - chunk * 16, 0), 16));
  }
}
template <int WIDTH, int PAD, int AT_ONCE = 64>
TS_MMA_DEVICE void store_slab(Out *to, const unsigned char *staged, i64 slab, i64 rows, int lane) {
  constexpr int ROW = WIDTH * sizeof(Out), COUNT = SLAB * ROW / 16, EACH = 16 / sizeof(Out);
  const int left = bytes_left<ROW>(slab, rows);
  unsigned char *const first = (unsigned char *)to + slab * (SLAB * ROW);
#pragma unroll AT_ONCE
  for (int i = 0; i < COUNT; i += 32) {
    const int chunk = i + lane;
    if (i + 32 <= COUNT || chunk < COUNT) {
      const Pack<Out, EACH> v = *(const Pack<Out, EACH> *)(staged + place_of_chunk<Out, WIDTH, PAD>(chunk));
      if (chunk * 16 + 16 <= left) {
        *(Pack<Out, EACH> *)(first + chunk * 16) = v;
      } else {
#pragma unroll
        for (int e = 0; e < EACH; e++)
          if (chunk * 16 + e * (int)sizeof(Out) < left) ((Out *)(first + chunk * 16))[e] = v.v[e];
      }
    }
  }
}
