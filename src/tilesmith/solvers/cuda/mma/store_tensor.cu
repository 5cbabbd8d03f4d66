  // Sums of 16 rows at a time pass through the warp's own shared memory, so that lanes store neighbouring columns.
  constexpr int PITCH = WARP_N + 8;
  constexpr int N = PARTIAL ? 4 : OUT_VECTOR;
  const u32 staged = ring + warp * 16 * PITCH * 4;
  const Sum *const mine = (const Sum *)(memory + warp * 16 * PITCH * 4);
#pragma unroll
  for (int i = 0; i < TILES_M; i++) {
    const u32 first = staged + (A_PAIRED ? lane / 4 * 2 : lane / 4) * PITCH * 4;
    constexpr int BELOW = (A_PAIRED ? 1 : 8) * PITCH * 4;
#pragma unroll
    for (int j = 0; j < TILES_N; j += 2) {
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const u32 to = first + (B_PAIRED ? j * 8 + lane % 4 * 4 + e * 2 : (j + e) * 8 + lane % 4 * 2) * 4;
        const int u = B_PAIRED ? j : j + e, v = B_PAIRED ? j + 1 : j + e, p = B_PAIRED ? e : 0, q = B_PAIRED ? e : 1;
        shared_store8(to, sums[i][u][p], sums[i][v][q]);
        shared_store8(to + BELOW, sums[i][u][p + 2], sums[i][v][q + 2]);
      }
    }
    __syncwarp();
    for (int at = lane; at < 16 * WARP_N / N; at += 32) {
      const int r = at / (WARP_N / N), c = at % (WARP_N / N) * N;
      const int in_tile = warp_m * WARP_M + i * 16 + r, row = m0 + in_tile, col = n0 + warp_n * WARP_N + c;
      Sum v[N];
#pragma unroll
      for (int e = 0; e < N; e++) v[e] = mine[r * PITCH + c + e];
      if constexpr (PARTIAL) {
        if (row < rows && col < pitch)
          *(Pack<Sum, N> *)(partial + (((i64)layer_part * rows + row) * pitch + col)) = *(const Pack<Sum, N> *)v;
      } else if (row_place[in_tile] != NOWHERE) {
        finish(v, row_place[in_tile], row, col, group, ph);
      }
    }
    __syncwarp();
  }
