// Bulk copies of what lies in one piece: addresses and sizes are multiples of 16. An mbarrier counts the bytes that come.
TS_MMA_DEVICE void barrier_init(u32 barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
}
TS_MMA_DEVICE void barrier_init_done() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
TS_MMA_DEVICE void barrier_wait(u32 barrier, u32 phase) {
  u32 done = 0;
  while (!done)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(barrier), "r"(phase)
                 : "memory");
}
TS_MMA_DEVICE void bulk_load(u32 to, const void *from, u32 bytes, u32 barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
  if (bytes)
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}
TS_MMA_DEVICE void bulk_store(void *to, u32 from, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes) : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Until all stores have read what they store, or have stored it.
TS_MMA_DEVICE void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
TS_MMA_DEVICE void bulk_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
// What was written before is seen by bulk copies that begin behind it.
TS_MMA_DEVICE void bulk_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

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
  if (lane == 0) bulk_load(shared_address(memory) + to, first, left & ~15, barrier);
}
template <int WIDTH>
TS_MMA_DEVICE void store_piece(Out *to, const unsigned char *memory, int from, i64 slab, i64 rows, int lane) {
  const int left = bytes_left<WIDTH * (int)sizeof(Out)>(slab, rows), rest = left % 16 / (int)sizeof(Out);
  Out *const first = to + slab * (SLAB * WIDTH);
  if (lane == 0 && left >= 16) bulk_store(first, shared_address(memory) + from, left & ~15);
  if (lane < rest) {
    const int e = left / 16 * (16 / (int)sizeof(Out)) + lane;
    first[e] = ((const Out *)(memory + from))[e];
  }
}
