// The same sums by products of a warpgroup: units of the window in registers, the filter in shared memory.
TS_MMA_DEVICE void weights_written() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
template <int N> TS_MMA_DEVICE void await_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
TS_MMA_DEVICE void gather(u32 (&a)[4], const unsigned char *low, const unsigned char *high, int step, int place);

template <int COUNT>
TS_MMA_DEVICE void multiply_all(float (&sums)[COUNT][BLOCK_N / 2], const unsigned char *weights,
                                const unsigned char *from, const int (&rows)[COUNT][2], int place) {
  constexpr int AT_ONCE = 8, ROUNDS = (UNITS / 4 + AT_ONCE - 1) / AT_ONCE;
  const u64 matrix = (u64)(128 >> 4) << 32 | (u64)(BLOCK_N * 16 >> 4) << 16 | (u64)((shared_address(weights) & 0x3ffff) >> 4);
  u32 a[2][AT_ONCE][4];
#pragma unroll
  for (int i = 0; i < COUNT; i++)
#pragma unroll
    for (int round = 0; round < ROUNDS; round++) {
      u32(&mine)[AT_ONCE][4] = a[(i * ROUNDS + round) % 2];
      await_products<1>();
#pragma unroll
      for (int s = 0; s < AT_ONCE; s++)
        if (round * AT_ONCE + s < UNITS / 4)
          gather(mine[s], from + rows[i][0], from + rows[i][1], round * AT_ONCE + s, place);
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int s = 0; s < AT_ONCE; s++)
        if (round * AT_ONCE + s < UNITS / 4)
          product(sums[i], mine[s], matrix + (u64)((round * AT_ONCE + s) * BLOCK_N * 32 >> 4), round + s != 0);
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    }
  await_products<0>();
}
