  // The first fragments of the next stage are fetched before the last products of this one.
  constexpr int PRODUCTS = BLOCK_K * sizeof(Element) / 32; // a product takes 32 bytes of a line
  u32 fragments_a[2][TILES_M][4], fragments_b[2][TILES_N / 2][4];
  copy_wait<STAGES - 2>();
  __syncthreads();
  if (begin < end) fetch(ring, ring + CopiesA::BYTES, 0, fragments_a[0], fragments_b[0]);
  int now = 0, next = STAGES - 1;
#pragma unroll 1
  for (int step = begin; step < end; step++) {
    const u32 here = ring + now * STAGE_BYTES, to = ring + next * STAGE_BYTES;
    now = now + 1 == STAGES ? 0 : now + 1;
    next = next + 1 == STAGES ? 0 : next + 1;
    const bool more = step + STAGES - 1 < end;
    // All warps are past the products whose operands lay at `to`: they met at the end of the last step.
    if (more) {
      load_a(step + STAGES - 1, to);
      load_b(step + STAGES - 1, to + CopiesA::BYTES);
    }
    copy_commit();
#pragma unroll
    for (int k = 0; k < PRODUCTS; k++) {
      constexpr int ODD = PRODUCTS % 2;
      const int from = ODD ? 0 : k % 2, ahead = ODD ? 0 : (k + 1) % 2;
      if (k == PRODUCTS - 1) {
        if (more) {
          CopiesA::put(to, held_a);
          CopiesB::put(to + CopiesA::BYTES, held_b);
        }
        copy_wait<STAGES - 2>();
        __syncthreads();
      }
      if constexpr (ODD) {
        multiply_all(fragments_a[0], fragments_b[0]);
        const u32 there = ring + now * STAGE_BYTES;
        fetch(there, there + CopiesA::BYTES, 0, fragments_a[0], fragments_b[0]);
      } else {
        const u32 there = k == PRODUCTS - 1 ? ring + now * STAGE_BYTES : here;
        fetch(there, there + CopiesA::BYTES, (k + 1) % PRODUCTS, fragments_a[ahead], fragments_b[ahead]);
        multiply_all(fragments_a[from], fragments_b[from]);
      }
    }
  }
