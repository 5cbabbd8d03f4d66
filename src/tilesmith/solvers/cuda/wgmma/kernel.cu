extern "C" __global__ void __launch_bounds__(THREADS, PER_SM) @SYM@(TS_PARAMETERS) {
  extern __shared__ __align__(1024) unsigned char ts_shared[];
  if (threadIdx.x == WARPGROUPS * 128) ts_map_prefetch(&map_a), ts_map_prefetch(&map_b);
  const Run run = TS_RUN;
  const Maps maps = {&map_a, &map_b, &map_c, &map_tail, &TS_RESIDUAL_MAP};
  const Block my = block_of(run, ts_shared_address(ts_shared));
  if (my.wg < WARPGROUPS) multiply(run, maps, my);
  else copy(run, maps, my);
  if (CAST > 1) { // no block ends before the peers' last copies into it, and arrivals at its barriers
    __syncwarp();
    ts_cluster_arrive();
    ts_cluster_wait();
  }
}
