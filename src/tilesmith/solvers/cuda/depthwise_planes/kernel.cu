// A thread computes TH rows of VEC neighbouring results of a channel, from windows of the rows of inputs that they read.
extern "C" __global__ void __launch_bounds__(THREADS) @SYM@(TS_PARAMETERS) {
  const Run run = TS_RUN;
  wait_previous();
  const i64 item = (i64)blockIdx.x * THREADS + threadIdx.x, line = item / run.out_vectors, plane = line / run.tiles_h;
  const int vector = (int)(item - line * run.out_vectors), h0 = (int)(line - plane * run.tiles_h) * TH;
  const int n = (int)(plane / run.channels), c = (int)(plane - (i64)n * run.channels);
  if (n >= run.images) return;
  const Element *const from = run.x + n * run.in_n + c * run.in_channel;
  const Element *const filter = run.w + c * run.w_channel;
  auto tap = [&](int r, int s) {
    return widened(filter[(BACK ? R - 1 - r : r) * run.w_row + (BACK ? S - 1 - s : s) * run.w_column]);
  };
  float weights[R][S], sums[TH][VEC] = {};
#pragma unroll
  for (int r = 0; r < R; r++)
#pragma unroll
    for (int s = 0; s < S; s++) weights[r][s] = tap(r, s);
#pragma unroll
  for (int row = 0; row < (TH - 1) + (R - 1) * DILATION_H + 1; row++) {
    bool used = false;
#pragma unroll
    for (int r = 0; r < R; r++) used |= row >= r * DILATION_H && row - r * DILATION_H < TH;
    if (!used) continue;
    const int h = h0 + row - PAD_H;
    Window x;
    x.load(from + (i64)h * run.in_row, vector, run.in_vectors, (u32)h < (u32)run.in_h);
#pragma unroll
    for (int r = 0; r < R; r++) {
      const int i = row - r * DILATION_H;
      if (i < 0 || i >= TH) continue;
#pragma unroll
      for (int s = 0; s < S; s++)
#pragma unroll
        for (int v = 0; v < VEC; v++) sums[i][v] = fmaf(x.at(v + s * DILATION_W), weights[r][s], sums[i][v]);
    }
  }
  // Zeros outside dy met what is no number, or Inf, in the filter: they are no part of the definition. Once in the text.
  if constexpr (BACK) {
    bool odd = false;
#pragma unroll
    for (int e = 0; e < TH * VEC; e++) odd |= sums[e / VEC][e % VEC] != sums[e / VEC][e % VEC];
#pragma unroll 1
    for (int at = 0; odd && at < TH * VEC; at++) {
      float sum = 0.0f;
#pragma unroll
      for (int e = 0; e < TH * VEC; e++) sum = e == at ? sums[e / VEC][e % VEC] : sum;
      if (sum == sum) continue;
      sum = 0.0f;
#pragma unroll 1
      for (int k = 0; k < R * S; k++) {
        const int a = h0 + at / VEC + k / S * DILATION_H - PAD_H, b = vector * VEC + at % VEC + k % S * DILATION_W - PAD_W;
        if ((u32)a < (u32)run.in_h && (u32)b < (u32)(run.in_vectors * VEC))
          sum = fmaf(widened(from[(i64)a * run.in_row + b]), tap(k / S, k % S), sum);
      }
#pragma unroll
      for (int e = 0; e < TH * VEC; e++) sums[e / VEC][e % VEC] = e == at ? sum : sums[e / VEC][e % VEC];
    }
  }
  const float added = BIAS ? widened(run.bias[c]) : 0.0f;
  // Long results are once in the text: those of a row, to which the next rows move.
#pragma unroll IN_TURNS ? 1 : TH
  for (int i = 0; i < TH; i++) {
    const int h = h0 + i;
    if (h >= run.out_h) break;
    const i64 at = n * run.out_n + c * run.out_channel + (i64)h * run.out_row + vector * VEC;
    float(&row)[VEC] = sums[IN_TURNS ? 0 : i];
    Pack<Out, VEC> given, result;
    if constexpr (RESIDUAL) given = *(const Pack<Out, VEC> *)(run.residual + at);
#pragma unroll
    for (int v = 0; v < VEC; v++) {
      float sum = row[v];
      if constexpr (BIAS) sum += added;
      if constexpr (RESIDUAL) sum += widened(given.v[v]);
      narrow(result.v[v], activate(sum));
    }
    *(Pack<Out, VEC> *)(run.out + at) = result;
    if constexpr (IN_TURNS)
#pragma unroll
      for (int next = 0; next + 1 < TH; next++)
#pragma unroll
        for (int v = 0; v < VEC; v++) sums[next][v] = sums[next + 1 < TH ? next + 1 : next][v];
  }
}
