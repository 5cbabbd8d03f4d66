// Warpgroups of a block with different work: registers that one gives another, and barriers of some of the threads. Source:
// PTX ISA 8. Kernels of both preludes have this text with the types of theirs.
template <int N> TS_DEVICE void ts_registers_shrink() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> TS_DEVICE void ts_registers_grow() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }
TS_DEVICE void ts_named_sync(ts_u32 id, ts_u32 threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
