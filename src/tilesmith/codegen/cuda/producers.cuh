// What a warpgroup that copies and those that multiply tell one another, beside roles.cuh; for kernels of sm_90a and later.

// Arrives once all asynchronous copies of the thread have landed.
TS_MMA_DEVICE void copies_arrive(u32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
// Whether the phase has ended; does not wait.
TS_MMA_DEVICE bool barrier_test(u32 barrier, u32 phase) {
  u32 done;
  asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(done)
               : "r"(barrier), "r"(phase)
               : "memory");
  return done;
}
