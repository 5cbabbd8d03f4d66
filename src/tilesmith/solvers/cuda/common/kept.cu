// The compiler shall keep `v` in a register: it would rather compute it again in each step.
template <typename T> TS_MMA_DEVICE void kept(T &v) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) == 8)
    asm volatile("" : "+l"(v));
  else
    asm volatile("" : "+r"(v));
#endif
}
