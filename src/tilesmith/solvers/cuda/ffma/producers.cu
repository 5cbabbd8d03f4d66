
// Where a warpgroup of its own copies, as soon as a stage is free.
struct Stages {
  // Barriers of a stage: `full` once all threads that copy have brought their parts, `free` once all others have read.
  // NOTE: each lane arrives for itself, because racecheck does not see that one arrives for its warp; both are as fast.
  u32 full, first, phase = 0;

  TS_MMA_METHOD Stages(u32 ring) : full(ring + BARRIERS_AT), first(full) {
    if (threadIdx.x > 0) return;
#pragma unroll 1
    for (int s = 0; s < STAGES * 2; s++) ts_barrier_init(first + s * 8, s < STAGES ? COPY_THREADS : FIRST_COPIER);
    ts_barrier_init_done();
  }
  TS_MMA_METHOD u32 free() const { return full + STAGES * 8; }
  TS_MMA_METHOD void advance() {
    full += 8;
    if (full == first + STAGES * 8) full = first, phase ^= 1;
  }
  // Whether this thread has nothing to multiply: those that copy have done so.
  TS_MMA_METHOD bool begin(const Results &run, u32 ring) {
    __syncthreads();
    if (threadIdx.x < FIRST_COPIER) {
      ts_registers_grow<REGISTERS>();
      return false;
    }
    ts_registers_shrink<COPY_REGISTERS>();
    bring(run, ring);
    return true;
  }
  TS_MMA_METHOD void bring(const Results &run, u32 ring) {
    u32 here = ring;
    each_tile(run, [&](int begin, int end, int layer, int m0, int n0) {
      CopiesA a(run.a_base + layer * run.a_group, run.rows, run.a_line, run.a_channel, m0);
      CopiesB b(run.b_base + layer * run.b_group, run.cols, run.b_line, run.b_channel, n0);
      a.move_to(first_k(run, begin)), b.move_to(first_k(run, begin));
      int left = first_left(run, begin);
#pragma unroll 1
      for (int step = begin; step < end; step++) {
        barrier_wait(free(), phase ^ 1);
        a.take_some<true>(here, left), b.take_some<true>(here + CopiesA::BYTES, left);
        copies_arrive(full);
        a.move_to(left), b.move_to(left), left = BLOCK_K;
        advance(), here = here == ring + (STAGES - 1) * STAGE_BYTES ? ring : here + STAGE_BYTES;
      }
      if (STREAM && GATHERED) __syncthreads(); // the tile's results take the ring's place
    });
  }
};

// The steps of a tile.
struct Feed {
  Stages &stages, after_this;
  u32 from_a, from_b; // what is fetched next, in the ring
  bool ready = false; // the next stage

  TS_MMA_METHOD Feed(const Results &, u32, Stages &stages, int, int, int, int, int)
      : stages(stages), after_this(stages), from_a(here()), from_b(here()) {}
  TS_MMA_METHOD u32 here() const { return (stages.full - stages.first) / 8 * STAGE_BYTES; }
  TS_MMA_METHOD void wait() const { barrier_wait(stages.full, stages.phase); }
  // Ahead of the products of a turn's k, `part` of a step: before the fragments of the next k are fetched, and after.
  // NOTE: a stage is asked about two k ahead of its first use and waited for one k ahead, because all that a wait holds
  // up is behind it in the text (2048 x 2048 x 2048 on an H200: 332 us, 338 with a wait where the stage is used).
  TS_MMA_METHOD void before(int k, int part, bool more) {
    const bool ends = part == PARTS - 1;
    if (k == 0) after_this = stages, after_this.advance(), ready = false;
    if (TURN > 2 && k == TURN - 3) ready = barrier_test(after_this.full, after_this.phase);
    if (k == TURN - 2 && ends && more && !ready) barrier_wait(after_this.full, after_this.phase);
    if (k < TURN - 1) return;
    // Behind the last step of a tile nothing is fetched that is used.
    const u32 there = (after_this.full - after_this.first) / 8 * STAGE_BYTES;
    from_a = ends ? (more ? there : from_a) : from_a + TURN * CopiesA::PITCH * 4;
    from_b = ends ? (more ? there : from_b) : from_b + TURN * CopiesB::PITCH * 4;
  }
  TS_MMA_METHOD void between(int, int) const {}
  // What the last products read has come, and so has all that was read before.
  TS_MMA_METHOD void after(int part) {
    const bool ends = part == PARTS - 1;
    if (ends) barrier_arrive(stages.free(), 1);
    if (ends) stages = after_this;
  }
  // Behind all products of a tile, and once its results have left the ring.
  TS_MMA_METHOD void end() const {}
  TS_MMA_METHOD void stored() const {
    if (STREAM && GATHERED) __syncthreads();
  }
};
// All warps that multiply.
TS_MMA_DEVICE void warps_sync() { ts_named_sync(1, WARPS * 32); }

