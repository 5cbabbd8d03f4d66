// A block's tiles, the parts of its shared memory, and which of its threads this one is.
struct Block {
  ts_u32 ring, staging, barriers, factors;
  ts_u32 kept;          // B's steps, when they stay
  ts_u32 received, own; // of a cluster's sums
  int wg, thread, lane, warp, rank;
  int begin, stride, until;
};
TS_DEVICE Block block_of(const Run &run, ts_u32 shared) {
  Block my;
  my.ring = shared, my.staging = my.ring + RING, my.barriers = my.staging + STAGING;
  my.wg = __shfl_sync(~0u, threadIdx.x >> 7, 0), my.thread = threadIdx.x & 127, my.lane = threadIdx.x & 31;
  my.warp = __shfl_sync(~0u, my.thread >> 5, 0), my.rank = SPLIT * CAST > 1 ? (int)ts_cluster_rank() : 0;
  my.received = my.barriers + 16 * STAGES, my.own = RECEIVE_APART ? my.staging : my.ring;
  my.factors = my.barriers + BARRIERS + BIAS_BYTES;
  my.kept = (my.factors + FACTOR_BYTES + 1023) / 1024 * 1024;
  my.begin = ONCE ? 0 : blockIdx.x / (SPLIT * CAST), my.stride = ONCE ? 1 : gridDim.x / (SPLIT * CAST);
  my.until = ONCE ? 1 : run.total;
  return my;
}
// The barriers of a stage of the ring, and those of the residual (the first one of the warp, or of the warpgroup).
TS_DEVICE ts_u32 full(const Block &my, ts_u32 stage) { return my.barriers + 8 * stage; }
TS_DEVICE ts_u32 empty(const Block &my, ts_u32 stage) { return my.barriers + 8 * (STAGES + stage); }
TS_DEVICE ts_u32 arrived(const Block &my) {
  return my.received + 8 + 8 * ARRIVALS * (TRANSPOSED ? my.wg : my.wg * 4 + my.warp);
}
// The first row of a warpgroup's part of its tile.
TS_DEVICE int row_of(const Block &my, const Work &w) { return w.m * BLOCK_M + (PINGPONG ? 0 : my.wg * WG_ROWS); }
// The last axis of the result's map.
TS_DEVICE int third_of(const Work &w) { return KIND == GEMM ? w.layer : w.group; }

struct Maps {
  const ts_map *a, *b, *c, *tail, *residual;
};

// Each warp says that it has read its factors, of operands one does for the warpgroup.
TS_DEVICE void release(ts_u32 empty, int thread) {
  if ((BLOCKWISE ? thread & 31 : thread) == 0) ts_arrive(empty);
  const int column_peer = thread - 31, row_peer = thread - 63; // counted from 1
  if (CAST_M > 1 && column_peer > 0 && column_peer < CAST_M) {
    const int rank = (int)ts_cluster_rank();
    ts_peer_arrive(ts_peer_address(empty, rank / CAST_M * CAST_M + (rank + column_peer) % CAST_M));
  }
  if (CAST_N > 1 && row_peer > 0 && row_peer < CAST_N)
    ts_peer_arrive(ts_peer_address(empty, ((int)ts_cluster_rank() + row_peer * CAST_M) % CAST));
}
