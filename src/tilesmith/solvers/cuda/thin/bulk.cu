// A slab of rows without gaps, by one lane; the last one's may end inside 16 bytes.
template <int WIDTH>
TS_MMA_DEVICE void load_piece(unsigned char *memory, int to, const Element *from, i64 slab, i64 rows, int lane, u32 barrier) {
  const int left = bytes_left<WIDTH * (int)sizeof(Element)>(slab, rows), rest = left % 16 / (int)sizeof(Element);
  if (left == 0) return;
  const Element *const first = from + slab * (SLAB * WIDTH);
  if (lane < rest) {
    const int e = left / 16 * (16 / (int)sizeof(Element)) + lane;
    ((Element *)(memory + to))[e] = first[e];
  }
  __syncwarp();
  if (lane == 0) {
    ts_expect(barrier, left & ~15);
    if (left & ~15) ts_load_run(shared_address(memory) + to, first, left & ~15, barrier);
  }
}
template <int WIDTH>
TS_MMA_DEVICE void store_piece(Out *to, const unsigned char *memory, int from, i64 slab, i64 rows, int lane) {
  const int left = bytes_left<WIDTH * (int)sizeof(Out)>(slab, rows), rest = left % 16 / (int)sizeof(Out);
  Out *const first = to + slab * (SLAB * WIDTH);
  if (lane == 0 && left >= 16) {
    ts_store_run(first, shared_address(memory) + from, left & ~15);
    ts_store_commit();
  }
  if (lane < rest) {
    const int e = left / 16 * (16 / (int)sizeof(Out)) + lane;
    first[e] = ((const Out *)(memory + from))[e];
  }
}
