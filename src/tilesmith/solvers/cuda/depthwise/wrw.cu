namespace ts_mma {
namespace @SYM@_scope {
@HEADER@

// A thread holds the sums of TAP_ROWS rows of the filter for VEC channels, and walks over tiles of dy.
constexpr int ROWS = (TH - 1) * STRIDE_H + (TAP_ROWS - 1) * DILATION_H + 1;
constexpr int COLUMNS = (TW - 1) * STRIDE_W + (S - 1) * DILATION_W + 1;
TS_MMA_CONSTANT bool row_used(int h) {
  for (int i = 0; i < TH; i++)
    for (int r = 0; r < TAP_ROWS; r++)
      if (i * STRIDE_H + r * DILATION_H == h) return true;
  return false;
}
TS_MMA_CONSTANT bool column_used(int at) {
  for (int j = 0; j < TW; j++)
    for (int s = 0; s < S; s++)
      if (j * STRIDE_W + s * DILATION_W == at) return true;
  return false;
}

struct Yes {
  static constexpr bool value = true;
};
struct No {
  static constexpr bool value = false;
};

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) @SYM@(TS_PARAMETERS) {
  const Run run = TS_RUN;
  wait_previous();
  extern __shared__ __align__(128) unsigned char memory[];
  float *const gathered = (float *)memory;
  const int c0 = (blockIdx.y * blockDim.x + threadIdx.x) * VEC, r0 = blockIdx.z * TAP_ROWS;
  const bool active = c0 < run.channels;
  float sums[TAP_ROWS * S][VEC] = {};

  auto add = [&](auto whole, int n, int h0, int w0) {
    constexpr bool WHOLE = decltype(whole)::value;
    const Element *const from_dy = dy + (i64)n * run.out_n + h0 * run.out_row + w0 * run.out_column + c0;
    Vector by[TH][TW];
    bool exists[TH][TW];
#pragma unroll
    for (int i = 0; i < TH; i++)
#pragma unroll
      for (int j = 0; j < TW; j++) {
        exists[i][j] = WHOLE || (h0 + i < run.out_h && w0 + j < run.out_w);
        by[i][j] = Vector::load(from_dy + i * run.out_row + j * run.out_column, exists[i][j]);
      }
    const int top = h0 * STRIDE_H - PAD_H + r0 * DILATION_H, left = w0 * STRIDE_W - PAD_W;
    const Element *const from = x + (i64)n * run.in_n + c0;
#pragma unroll
    for (int h = 0; h < ROWS; h++) {
      if (!row_used(h)) continue;
      const bool in_image = (u32)(top + h) < (u32)run.in_h;
      Vector row[COLUMNS];
#pragma unroll
      for (int j = 0; j < COLUMNS; j++)
        if (column_used(j))
          row[j] = Vector::load(from + (top + h) * run.in_row + (left + j) * run.in_column,
                                in_image && (u32)(left + j) < (u32)run.in_w);
#pragma unroll
      for (int r = 0; r < TAP_ROWS; r++)
#pragma unroll
        for (int i = 0; i < TH; i++) {
          if (i * STRIDE_H + r * DILATION_H != h) continue;
#pragma unroll
          for (int s = 0; s < S; s++)
#pragma unroll
            for (int j = 0; j < TW; j++)
#pragma unroll
              for (int v = 0; v < VEC; v++) {
                const float at = row[j * STRIDE_W + s * DILATION_W][v];
                // x must not meet an element of dy that does not exist: 0 * NaN.
                sums[r * S + s][v] = fmaf(WHOLE || exists[i][j] ? at : 0.0f, by[i][j][v], sums[r * S + s][v]);
              }
        }
    }
  };
  if (active)
#pragma unroll 1
    for (int tile = blockIdx.x * blockDim.y + threadIdx.y; tile < run.tiles; tile += gridDim.x * blockDim.y) {
      const int line = tile / run.tiles_w, n = line / run.tiles_h;
      const int h0 = (line - n * run.tiles_h) * TH, w0 = (tile - line * run.tiles_w) * TW;
      if (h0 + TH <= run.out_h && w0 + TW <= run.out_w)
        add(Yes(), n, h0, w0);
      else
        add(No(), n, h0, w0);
    }
  // The block's threads of one channel, always in the same order; SPAN taps at a time.
  const int threads = blockDim.x * blockDim.y, row = blockDim.x * VEC;
#pragma unroll
  for (int first = 0; first < TAP_ROWS * S; first += SPAN) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < SPAN && first + i < TAP_ROWS * S; i++)
#pragma unroll
      for (int v = 0; v < VEC; v++)
        gathered[(i * threads + threadIdx.y * blockDim.x + threadIdx.x) * VEC + v] = sums[first + i][v];
    __syncthreads();
    for (int i = threadIdx.y * blockDim.x + threadIdx.x; i < SPAN * row; i += threads) {
      const int of = i / row, c = blockIdx.y * row + i - of * row, tap = first + of;
      if (tap >= TAP_ROWS * S || r0 + tap / S >= R || c >= run.channels) continue;
      float sum = 0.0f;
#pragma unroll 8
      for (int k = 0; k < (int)blockDim.y; k++) sum += gathered[of * threads * VEC + k * row + i - of * row];
      partial[((i64)blockIdx.x * R * S + r0 * S + tap) * run.channels + c] = sum;
    }
  }
}
} // namespace @SYM@_scope
} // namespace ts_mma
