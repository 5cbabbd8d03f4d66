// mbarriers, and bulk copies of what lies in one piece. Source: PTX ISA 8. Kernels of both preludes have this text with
// the types of theirs; each waits in its own way, because that decides which loops NVRTC unrolls.
// --- mbarriers ---
TS_DEVICE void ts_barrier_init(ts_u32 barrier, ts_u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
TS_DEVICE void ts_barrier_init_done() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
TS_DEVICE void ts_expect(ts_u32 barrier, ts_u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// --- bulk copies: addresses and sizes are multiples of 16 ---
// Bytes of memory to shared memory, whose barrier counts them.
TS_DEVICE void ts_load_run(ts_u32 to, const void *from, ts_u32 bytes, ts_u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
// Bytes of shared memory to memory.
TS_DEVICE void ts_store_run(void *to, ts_u32 from, ts_u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes) : "memory");
}
TS_DEVICE void ts_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Waits until all but the last N groups of stores have read their shared memory.
template <int N> TS_DEVICE void ts_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
TS_DEVICE void ts_store_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
TS_DEVICE void ts_async_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
