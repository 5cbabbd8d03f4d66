  constexpr int N = B_BY_K ? 1 : PARTIAL ? 4 : OUT_VECTOR < 4 ? OUT_VECTOR : 4;
#pragma unroll
  for (int i = 0; i < ROWS; i++) {
    const int in_tile = row_of(i), row = m0 + in_tile, place = row_place[in_tile];
#pragma unroll
    for (int j = 0; j < COLUMNS; j += N) {
      const int col = n0 + column_of(j);
      float v[N];
#pragma unroll
      for (int e = 0; e < N; e++) v[e] = sums[i][j + e];
      if constexpr (PARTIAL) {
        if (row < rows && col < pitch)
          *(Pack<float, N> *)(partial + (((i64)layer_part * rows + row) * pitch + col)) = *(const Pack<float, N> *)v;
      } else if (place != NOWHERE) {
        finish(v, place, row, col, group, ph);
      }
    }
  }
