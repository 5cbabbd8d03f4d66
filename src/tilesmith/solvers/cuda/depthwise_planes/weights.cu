// A block sums a share of the pixels of a channel: a thread meets VEC neighbours of dy with windows of rows of x.
extern "C" __global__ void __launch_bounds__(THREADS) @SYM@(TS_PARAMETERS) {
  const Run run = TS_RUN;
  __shared__ float gathered[THREADS];
  wait_previous();
  const int c = blockIdx.x, part = blockIdx.y;
  const i64 items = (i64)run.images * run.out_h * run.out_vectors;
  float sums[R][S] = {};
// NOTE: two items at once, but not in so long a text that it is fetched anew each time.
#pragma unroll R * S * VEC <= 160 ? 2 : 1
  for (i64 item = (i64)part * THREADS + threadIdx.x; item < items; item += (i64)run.parts * THREADS) {
    const i64 line = item / run.out_vectors;
    const int n = (int)(line / run.out_h), h = (int)(line - (i64)n * run.out_h);
    const int vector = (int)(item - line * run.out_vectors);
    const Pack<Element, VEC> by = *(const Pack<Element, VEC> *)(run.dy + n * run.out_n + c * run.out_channel +
                                                                (i64)h * run.out_row + vector * VEC);
    const Element *const from = run.x + n * run.in_n + c * run.in_channel;
#pragma unroll
    for (int r = 0; r < R; r++) {
      const int a = h + r * DILATION_H - PAD_H;
      Window x;
      x.load(from + (i64)a * run.in_row, vector, run.in_vectors, (u32)a < (u32)run.in_h);
#pragma unroll
      for (int s = 0; s < S; s++)
#pragma unroll
        for (int v = 0; v < VEC; v++) sums[r][s] = fmaf(x.at(v + s * DILATION_W), element(by, v), sums[r][s]);
    }
  }
  // All threads' sums, always in the same order. One row's are in the text, to which those of the others move.
#pragma unroll 1
  for (int r = 0; r < R; r++) {
#pragma unroll
    for (int s = 0; s < S; s++) {
      gathered[threadIdx.x] = sums[0][s];
#pragma unroll 1
      for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half) gathered[threadIdx.x] += gathered[threadIdx.x + half];
      }
      if (threadIdx.x == 0) {
        if constexpr (ALONE)
          narrow(run.dw[c * run.w_channel + r * run.w_row + s * run.w_column], gathered[0]);
        else
          run.partial[((i64)part * run.channels + c) * R * S + r * S + s] = gathered[0];
      }
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i + 1 < R; i++)
#pragma unroll
      for (int s = 0; s < S; s++) sums[i][s] = sums[i + 1 < R ? i + 1 : i][s];
  }
}
