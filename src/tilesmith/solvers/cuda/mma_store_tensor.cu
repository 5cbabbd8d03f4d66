  // Sums of 16 rows at a time pass through the warp's own shared memory, so that lanes store neighbouring columns.
  constexpr int PITCH = WARP_N + 8;
  constexpr int N = PARTIAL ? 4 : OUT_VECTOR;
  const u32 staged = ring + warp * 16 * PITCH * 4;
  const float *const mine = (const float *)(memory + warp * 16 * PITCH * 4);
#pragma unroll
  for (int i = 0; i < TILES_M; i++) {
#pragma unroll
    for (int j = 0; j < TILES_N; j++) {
      const u32 to = staged + ((lane / 4) * PITCH + j * 8 + lane % 4 * 2) * 4;
      shared_store8(to, sums[i][j][0], sums[i][j][1]);
      shared_store8(to + 8 * PITCH * 4, sums[i][j][2], sums[i][j][3]);
    }
    __syncwarp();
    for (int at = lane; at < 16 * WARP_N / N; at += 32) {
      const int r = at / (WARP_N / N), c = at % (WARP_N / N) * N;
      const int in_tile = warp_m * WARP_M + i * 16 + r, row = m0 + in_tile, col = n0 + warp_n * WARP_N + c;
      float v[N];
#pragma unroll
      for (int e = 0; e < N; e++) v[e] = mine[r * PITCH + c + e];
      if constexpr (PARTIAL) {
        if (row < rows && col < pitch)
          *(float4 *)(partial + (((i64)layer_part * rows + row) * pitch + col)) = make_float4(v[0], v[1], v[2], v[3]);
      } else if (row_place[in_tile] != NOWHERE) {
        finish(v, row_place[in_tile], row, col, group, ph);
      }
    }
    __syncwarp();
  }
