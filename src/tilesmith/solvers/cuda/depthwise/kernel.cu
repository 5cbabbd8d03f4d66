namespace ts_mma {
namespace @SYM@_scope {
@HEADER@

TS_MMA_CONSTANT int floor_div(int a, int b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }
constexpr int NONE = -(1 << 30);
// The input row, relative to the tile's, that output row i reads for tap r. Backward data: tiles begin at multiples
// of the stride, so that the taps of a row are known here.
TS_MMA_CONSTANT int source(int i, int r, int stride, int pad, int dilation) {
  return !BACK ? i * stride + r * dilation - pad
         : (i + pad - r * dilation) - stride * floor_div(i + pad - r * dilation, stride) == 0
             ? floor_div(i + pad - r * dilation, stride)
             : NONE;
}
TS_MMA_CONSTANT int least(int outputs, int taps, int stride, int pad, int dilation) {
  int found = 1 << 30;
  for (int i = 0; i < outputs; i++)
    for (int r = 0; r < taps; r++) {
      const int at = source(i, r, stride, pad, dilation);
      if (at != NONE && at < found) found = at;
    }
  return found == 1 << 30 ? 0 : found;
}
TS_MMA_CONSTANT int most(int outputs, int taps, int stride, int pad, int dilation) {
  int found = NONE;
  for (int i = 0; i < outputs; i++)
    for (int r = 0; r < taps; r++) {
      const int at = source(i, r, stride, pad, dilation);
      if (at != NONE && at > found) found = at;
    }
  return found == NONE ? -1 : found;
}
TS_MMA_CONSTANT bool used(int at, int outputs, int taps, int stride, int pad, int dilation) {
  for (int i = 0; i < outputs; i++)
    for (int r = 0; r < taps; r++)
      if (source(i, r, stride, pad, dilation) == at) return true;
  return false;
}
constexpr int FIRST_H = least(TH, R, STRIDE_H, PAD_H, DILATION_H), FIRST_W = least(TW, S, STRIDE_W, PAD_W, DILATION_W);
constexpr int ROWS = most(TH, R, STRIDE_H, PAD_H, DILATION_H) - FIRST_H + 1;
constexpr int COLUMNS = most(TW, S, STRIDE_W, PAD_W, DILATION_W) - FIRST_W + 1;
constexpr int HELD_ROWS = ROWS > 0 ? ROWS : 1, HELD = COLUMNS > 0 ? COLUMNS : 1;
// Elements of the filter that a thread brings, as many at once as are even shares of up to eight.
constexpr int TAPS = KD * R * S, ROW = LANES * VEC, ALL_FILLS = (TAPS * ROW + THREADS - 1) / THREADS;
constexpr int FILL_TURNS = (ALL_FILLS + 7) / 8, FILLS = (ALL_FILLS + FILL_TURNS - 1) / FILL_TURNS;
// The filter's element of a channel and a tap.
TS_MMA_DEVICE const Element *weight(const Run &run, int c, int tap) {
  const int row = DEEP ? tap / S % R : tap / S;
  const int depth = DEEP ? tap / (R * S) * (int)run.w_depth : 0;
  return run.w + c * run.w_channel + depth + row * (int)run.w_row + tap % S * (int)run.w_column;
}
constexpr bool BY_ROWS = TW == 1 || (TH > 1 && TH <= TW);
constexpr int TURNS = BY_ROWS ? TH : TW;

extern "C" __global__ void __launch_bounds__(256, 1) @SYM@(TS_PARAMETERS) {
  const Run run = TS_RUN;
  wait_previous();
  extern __shared__ __align__(128) unsigned char memory[];
  float *const shared_filter = (float *)memory;
  const int c0 = (blockIdx.y * LANES + threadIdx.x) * VEC;
  // The bias, read beside the filter: a block that is alone on its SM would wait for it.
  Out of_channels[VEC] = {};
  if constexpr (BIAS)
    if (c0 < run.channels)
      for (int v = 0; v < VEC; v++) of_channels[v] = bias[c0 + v];
  // The filter, widened. NOTE: it comes by way of shared memory even if registers hold it: a warp's elements of one
  // tap lie in as many cache lines as it has channels.
  const int c_block = blockIdx.y * ROW, thread = threadIdx.y * LANES + threadIdx.x;
#pragma unroll 1
  for (int begin = thread; begin < TAPS * ROW; begin += FILLS * THREADS)
#pragma unroll
    for (int fill = 0; fill < FILLS; fill++) {
      const int i = begin + fill * THREADS < TAPS * ROW ? begin + fill * THREADS : begin;
      const int of = i / TAPS, tap = i - of * TAPS, c = c_block + of < run.channels ? c_block + of : 0;
      shared_filter[tap * ROW + of] = widened(*weight(run, c, tap));
    }
  __syncthreads();
  if (c0 >= run.channels) return;
  float filter[IN_SHARED ? 1 : R * S][VEC];
  auto take = [&](auto plane_filter) {
#pragma unroll
    for (int tap = 0; tap < R * S; tap++) {
      constexpr int WIDE = VEC < 4 ? VEC : 4;
      const Pack<float, WIDE> *const from = (const Pack<float, WIDE> *)(plane_filter + tap * ROW + threadIdx.x * VEC);
#pragma unroll
      for (int v = 0; v < VEC; v++) filter[tap][v] = from[v / WIDE].v[v % WIDE];
    }
  };
  if constexpr (!IN_SHARED && !DEEP) take(shared_filter);
  const int tile = blockIdx.x * (THREADS / LANES) + threadIdx.y;
  if (tile >= run.tiles) return;
  const int line = divided(tile, run.tiles_w_m, run.tiles_w_s), slice = divided(line, run.tiles_h_m, run.tiles_h_s);
  const int n = DEEP ? divided(slice, run.out_d_m, run.out_d_s) : slice, d0 = DEEP ? slice - n * run.out_d : 0;
  const int h0 = (line - slice * run.tiles_h) * TH, w0 = (tile - line * run.tiles_w) * TW;
  const int top = (BACK ? h0 / STRIDE_H : h0 * STRIDE_H) + FIRST_H,
            left = (BACK ? w0 / STRIDE_W : w0 * STRIDE_W) + FIRST_W;
  const Element *const from = x + (i64)n * run.in_n + top * run.in_row + left * run.in_column + c0 / MULTIPLIER;

  float sums[TH][TW][VEC]; // begin with the bias
#pragma unroll
  for (int i = 0; i < TH * TW * VEC; i++) sums[i / (TW * VEC)][i / VEC % TW][i % VEC] = widened(of_channels[i % VEC]);
  Inputs ahead[AHEAD + 1][HELD];
  int plane = 0; // of inputs; forward, one that does not exist is zeros
  auto fetch = [&](int h, Inputs(&row)[HELD]) {
    const bool in_image = (u32)(top + h) < (u32)run.in_h && (!DEEP || (u32)plane < (u32)run.in_d);
    const Element *const at = opaque(from + (DEEP ? (i64)plane * run.in_depth : 0) + h * run.in_row);
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
      if (used(j + FIRST_W, TW, S, STRIDE_W, PAD_W, DILATION_W))
        row[j] = Inputs::load(at + j * run.in_column, in_image && (u32)(left + j) < (u32)run.in_w);
  };
#pragma unroll 1
  for (int kd = 0; kd < KD; kd++) {
    const float *const plane_filter = shared_filter + (DEEP ? kd * R * S * ROW : 0);
    if constexpr (DEEP) {
      plane = BACK ? d0 + PAD_D - kd * DILATION_D : d0 * STRIDE_D + kd * DILATION_D - PAD_D;
      if (BACK && (plane < 0 || plane % STRIDE_D || (plane /= STRIDE_D) >= run.in_d)) continue;
      if constexpr (!IN_SHARED) take(plane_filter);
    }
#pragma unroll
    for (int h = 0; h < AHEAD && h < ROWS; h++)
      if (used(h + FIRST_H, TH, R, STRIDE_H, PAD_H, DILATION_H)) fetch(h, ahead[h]);
    // ROLLED: as many rows are in the text as registers hold; which row of the filter they meet follows from the loop.
#pragma unroll ROLLED ? 1 : ROWS
    for (int begin = 0; begin < ROWS; begin += AHEAD + 1)
#pragma unroll
      for (int slot = 0; slot <= AHEAD; slot++) {
        const int h = begin + slot;
        if (h >= ROWS) break;
        if (h + AHEAD < ROWS && (ROLLED || used(h + AHEAD + FIRST_H, TH, R, STRIDE_H, PAD_H, DILATION_H)))
          fetch(h + AHEAD, ahead[(slot + AHEAD) % (AHEAD + 1)]);
#pragma unroll
        for (int tap_row = 0; tap_row < (ROLLED ? 1 : R); tap_row++)
#pragma unroll
          for (int i = 0; i < TH; i++) {
            const int reach = BACK ? i + PAD_H - (h + FIRST_H) * STRIDE_H : h - i * STRIDE_H;
            const int r = !ROLLED ? tap_row : DILATION_H == 1 ? reach : reach / DILATION_H;
            if (ROLLED ? (u32)reach > (u32)((R - 1) * DILATION_H) || (DILATION_H > 1 && reach != r * DILATION_H)
                       : source(i, r, STRIDE_H, PAD_H, DILATION_H) != h + FIRST_H)
              continue;
#pragma unroll
            for (int s = 0; s < S; s++)
#pragma unroll
              for (int j = 0; j < TW; j++) {
                const int column = source(j, s, STRIDE_W, PAD_W, DILATION_W);
                if (column == NONE) continue;
#pragma unroll
                for (int v = 0; v < VEC; v++) {
                  const float by = IN_SHARED ? plane_filter[((r * S + s) * LANES + threadIdx.x) * VEC + v]
                                             : filter[IN_SHARED ? 0 : r * S + s][v];
                  sums[i][j][v] =
                      fmaf(ahead[slot][column == NONE ? 0 : column - FIRST_W][input_of(v)], by, sums[i][j][v]);
                }
              }
          }
      }
  }
  bool no_number = false;
  auto finish = [&](auto &values, Out *to, const Out *given_at) {
    constexpr int N = sizeof(values) / sizeof(float);
    Pack<Out, N> given, result;
    if constexpr (RESIDUAL) given = *(const Pack<Out, N> *)given_at;
#pragma unroll
    for (int v = 0; v < N; v++) {
      float r = values[v];
      if constexpr (RESIDUAL) r += widened(given.v[v]);
      r = activate(r);
      if constexpr (BACK) no_number |= r != r;
      narrow(result.v[v], r);
    }
    *(Pack<Out, N> *)to = result;
  };
  const i64 first =
      (i64)n * run.out_n + (DEEP ? (i64)d0 * run.out_depth : 0) + h0 * run.out_row + w0 * run.out_column + c0;
  Out *const to = opaque(out + first);
  const Out *const given = opaque(residual + (RESIDUAL ? first : 0));
  // In turns: the sums of a row or, where columns are fewer than rows, of a column of the tile. Long results are once in the
  // text: in a loop, in which the sums of the others move to the place of the first.
#pragma unroll IN_TURNS ? 1 : TURNS
  for (int turn = 0; turn < TURNS; turn++) {
#pragma unroll
    for (int k = 0; k < TH * TW / TURNS; k++) {
      const int i = BY_ROWS ? turn : k, j = BY_ROWS ? k : turn;
      if (h0 + i < run.out_h && w0 + j < run.out_w) {
        const int at = i * run.out_row + j * run.out_column;
        finish(sums[BY_ROWS ? 0 : k][BY_ROWS ? k : 0], to + at, given + (RESIDUAL ? at : 0));
      }
    }
#pragma unroll
    for (int i = 0; i < TH; i++)
#pragma unroll
      for (int j = 0; j < TW; j++)
#pragma unroll
        for (int v = 0; v < VEC; v++)
          if (BY_ROWS ? i + 1 < TH : j + 1 < TW)
            sums[i][j][v] = sums[i + (BY_ROWS && i + 1 < TH)][j + (!BY_ROWS && j + 1 < TW)][v];
  }
  // Backward data multiplied what lies outside dy by zeros, and 0 * Inf is no part of the definition.
  if constexpr (BACK) {
    if (!no_number) return;
#pragma unroll 1
    for (int e = 0; e < TH * TW * VEC; e++) {
      const int h = h0 + e / VEC / TW, column = w0 + e / VEC % TW, c = c0 + e % VEC;
      if (h >= run.out_h || column >= run.out_w) continue;
      const i64 at = first + (h - h0) * run.out_row + (column - w0) * run.out_column + (c - c0);
      const float stored = widened(out[at]);
      if (stored == stored) continue;
      float sum[1] = {BIAS ? widened(bias[BIAS ? c : 0]) : 0.0f};
#pragma unroll 1
      for (int tap = 0; tap < TAPS; tap++) {
        const int row = DEEP ? tap / S % R : tap / S, z = DEEP ? d0 + PAD_D - tap / (R * S) * DILATION_D : 0;
        if (DEEP && (z < 0 || z % STRIDE_D || z / STRIDE_D >= run.in_d)) continue;
        const int a = h + PAD_H - row * DILATION_H, b = column + PAD_W - tap % S * DILATION_W;
        if (a < 0 || b < 0 || a % STRIDE_H || b % STRIDE_W || a / STRIDE_H >= run.in_h || b / STRIDE_W >= run.in_w)
          continue;
        const Element *const of_plane = x + (i64)n * run.in_n + (DEEP ? (i64)(z / STRIDE_D) * run.in_depth : 0);
        sum[0] = fmaf(widened(of_plane[a / STRIDE_H * run.in_row + b / STRIDE_W * run.in_column + c]),
                      widened(*weight(run, c, tap)), sum[0]);
      }
      finish(sum, out + at, residual + (RESIDUAL ? at : 0));
    }
  }
}
} // namespace @SYM@_scope
} // namespace ts_mma
