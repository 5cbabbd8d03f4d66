  int now = 0, next = STAGES - 1;
#pragma unroll 1
  for (int step = begin; step < end; step++) {
    copy_wait<STAGES - 2>();
    __syncthreads();
    const u32 to = ring + next * STAGE_BYTES;
    const bool more = step + STAGES - 1 < end;
    if (more) {
      load_a(step + STAGES - 1, to);
      load_b(step + STAGES - 1, to + CopiesA::BYTES);
    }
    copy_commit();
    accumulate(ring + now * STAGE_BYTES, ring + now * STAGE_BYTES + CopiesA::BYTES);
    if (more) {
      CopiesA::put(to, held_a);
      CopiesB::put(to + CopiesA::BYTES, held_b);
    }
    now = now + 1 == STAGES ? 0 : now + 1;
    next = next + 1 == STAGES ? 0 : next + 1;
  }
