namespace ts_mma {
namespace @SYM@_scope {
@HEADER@

// A thread holds the sums of TAP_ROWS rows of the filter for VEC channels, and walks over tiles of dy.
constexpr int SLOTS = THREADS / LANES;
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

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) @SYM@(TS_PARAMETERS) {
  const Run run = TS_RUN;
  wait_previous();
  extern __shared__ __align__(128) unsigned char memory[];
  float *const gathered = (float *)memory;
  // Blocks along z: rows of the filter, plane by plane.
  constexpr int ROW_BLOCKS = (R + TAP_ROWS - 1) / TAP_ROWS;
  const int kd = DEEP ? blockIdx.z / ROW_BLOCKS : 0;
  const int c0 = (blockIdx.y * LANES + threadIdx.x) * VEC, r0 = (blockIdx.z - kd * ROW_BLOCKS) * TAP_ROWS;
  const bool active = c0 < run.channels;
  float sums[TAP_ROWS * S][VEC] = {};

  if (active)
#pragma unroll 1
    for (int tile = blockIdx.x * SLOTS + threadIdx.y; tile < run.tiles; tile += gridDim.x * SLOTS) {
      const int line = divided(tile, run.tiles_w_m, run.tiles_w_s), slice = divided(line, run.tiles_h_m, run.tiles_h_s);
      const int n = DEEP ? divided(slice, run.out_d_m, run.out_d_s) : slice, d0 = DEEP ? slice - n * run.out_d : 0;
      const int h0 = (line - slice * run.tiles_h) * TH, w0 = (tile - line * run.tiles_w) * TW;
      const i64 slice_dy = (i64)n * run.out_n + (DEEP ? (i64)d0 * run.out_depth : 0);
      const Element *const from_dy = dy + slice_dy + h0 * run.out_row + w0 * run.out_column + c0;
      // NOTE: elements of dy that do not exist are zeros, which x may meet: what is no number then, the second kernel
      // computes again. A path of its own for tiles at the border was as long as that for whole ones.
      Vector by[TH][TW];
#pragma unroll
      for (int i = 0; i < TH; i++) {
        const Element *const at = opaque(from_dy + i * run.out_row);
#pragma unroll
        for (int j = 0; j < TW; j++)
          by[i][j] = Vector::load(at + j * run.out_column, h0 + i < run.out_h && w0 + j < run.out_w);
      }
      const int top = h0 * STRIDE_H - PAD_H + r0 * DILATION_H, left = w0 * STRIDE_W - PAD_W;
      const int plane = DEEP ? d0 * STRIDE_D + kd * DILATION_D - PAD_D : 0;
      const i64 slice_x = (i64)n * run.in_n + (DEEP ? (i64)plane * run.in_depth : 0);
      const Element *const from = x + slice_x + top * run.in_row + left * run.in_column + c0 / MULTIPLIER;
#pragma unroll
      for (int h = 0; h < ROWS; h++) {
        if (!row_used(h)) continue;
        const bool in_image = (u32)(top + h) < (u32)run.in_h && (!DEEP || (u32)plane < (u32)run.in_d);
        const Element *const at = opaque(from + h * run.in_row);
        Inputs row[COLUMNS];
#pragma unroll
        for (int j = 0; j < COLUMNS; j++)
          if (column_used(j))
            row[j] = Inputs::load(at + j * run.in_column, in_image && (u32)(left + j) < (u32)run.in_w);
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
                for (int v = 0; v < VEC; v++)
                  sums[r * S + s][v] =
                      fmaf(row[j * STRIDE_W + s * DILATION_W][input_of(v)], by[i][j][v], sums[r * S + s][v]);
          }
      }
    }
  // The block's threads of one channel, always in the same order; SPAN taps at a time, to whose
  // registers the next ones move.
  constexpr int ROW = LANES * VEC;
#pragma unroll 1
  for (int first = 0; first < TAP_ROWS * S; first += SPAN) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < SPAN; i++)
#pragma unroll
      for (int v = 0; v < VEC; v++)
        gathered[(i * THREADS + threadIdx.y * LANES + threadIdx.x) * VEC + v] = sums[i][v];
#pragma unroll
    for (int i = 0; i + SPAN < TAP_ROWS * S; i++)
#pragma unroll
      for (int v = 0; v < VEC; v++) sums[i][v] = sums[i + SPAN < TAP_ROWS * S ? i + SPAN : i][v];
    __syncthreads();
    for (int i = threadIdx.y * LANES + threadIdx.x; i < SPAN * ROW; i += THREADS) {
      const int of = i / ROW, c = blockIdx.y * ROW + i - of * ROW, tap = first + of;
      if (tap >= TAP_ROWS * S || r0 + tap / S >= R || c >= run.channels) continue;
      float sum = 0.0f;
#pragma unroll 8
      for (int k = 0; k < SLOTS; k++) sum += gathered[of * THREADS * VEC + k * ROW + i - of * ROW];
      partial[((i64)blockIdx.x * KD * R * S + (DEEP ? kd * R * S : 0) + r0 * S + tap) * run.channels + c] = sum;
    }
  }
}
} // namespace @SYM@_scope
} // namespace ts_mma
