template <int WIDTH, int PAD>
TS_MMA_DEVICE void store_slab(Out *to, const unsigned char *staged, i64 slab, i64 rows, int lane) {
  constexpr int ROW = WIDTH * sizeof(Out), COUNT = SLAB * ROW / 16, EACH = 16 / sizeof(Out);
  const int left = bytes_left<ROW>(slab, rows);
  unsigned char *const first = (unsigned char *)to + slab * (SLAB * ROW);
#pragma unroll
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
