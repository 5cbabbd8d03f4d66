
// Where all threads copy, STAGES - 1 steps ahead of the products.
struct Stages {
  TS_MMA_METHOD Stages(u32) {}
  // Whether this thread has nothing to multiply.
  TS_MMA_METHOD bool begin(const Results &, u32) const { return false; }
};

// The steps of a tile.
struct Feed {
  CopiesA a;
  CopiesB b;
  u32 ring, here = 0, next = (STAGES - 1) * STAGE_BYTES;
  u32 from_a = 0, from_b = 0; // what is fetched next, in the ring
  int more;                   // steps that are not asked for yet

  TS_MMA_METHOD Feed(const Results &run, u32 ring, Stages &, int begin, int end, int layer, int m0, int n0)
      : a(run.a_base + layer * run.a_group, run.rows, run.a_line, run.a_channel, m0),
        b(run.b_base + layer * run.b_group, run.cols, run.b_line, run.b_channel, n0), ring(ring), more(end - begin) {
    const int first = first_left(run, begin);
    a.move_to(first_k(run, begin)), b.move_to(first_k(run, begin));
#pragma unroll 1
    for (int s = 0; s < STAGES - 1; s++) {
      if (more > 0) {
        a.take<false, true>(ring + s * STAGE_BYTES, s ? BLOCK_K : first);
        b.take<false, true>(ring + s * STAGE_BYTES + CopiesA::BYTES, s ? BLOCK_K : first);
      }
      asked(s ? BLOCK_K : first);
    }
  }
  TS_MMA_METHOD void asked(int k) {
    copy_commit();
    a.move_to(k), b.move_to(k), more--;
  }
  TS_MMA_METHOD void wait() const {
    copy_wait<STAGES - 2>();
    __syncthreads();
  }
  // Ahead of the products of a turn's k, `part` of a step: before the fragments of the next k are fetched, and after.
  TS_MMA_METHOD void before(int k, int part, bool) {
    if (k < TURN - 1) return;
    if (part == PARTS - 1) {
      asked(BLOCK_K);
      wait();
      here = here == (STAGES - 1) * STAGE_BYTES ? 0 : here + STAGE_BYTES;
      next = next == (STAGES - 1) * STAGE_BYTES ? 0 : next + STAGE_BYTES;
      from_a = from_b = here;
    } else {
      from_a += TURN * CopiesA::PITCH * 4, from_b += TURN * CopiesB::PITCH * 4;
    }
  }
  TS_MMA_METHOD void between(int k, int part) {
    // All warps have fetched what lay at `next`.
    if (k == 0 && part == 0 && more > 0) a.take_some(ring + next);
    if (k == (PARTS > 1 ? 0 : (DEPTH - 1) / 2) && part == PARTS / 2 && more > 0) b.take_some(ring + next + CopiesA::BYTES);
  }
  TS_MMA_METHOD void after(int) const {}
  // Behind all products of a tile, and once its results have left the ring.
  TS_MMA_METHOD void end() const { copy_wait<0>(); }
  TS_MMA_METHOD void stored() const {
    if (STREAM) __syncthreads();
  }
};
// All warps that multiply.
TS_MMA_DEVICE void warps_sync() { __syncthreads(); }

