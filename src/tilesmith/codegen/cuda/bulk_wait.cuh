// A loop in the text and not in the instructions: the loop around it is not unrolled.
TS_MMA_DEVICE void barrier_wait(u32 barrier, u32 phase) {
  u32 done = 0;
  while (!done)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(barrier), "r"(phase)
                 : "memory");
}
