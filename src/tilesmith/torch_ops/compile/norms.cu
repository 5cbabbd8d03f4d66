// Batch norms with fixed statistics become a part of the filters and biases in front of them, all layers in one launch:
// filter * s and (bias - mean) * s + beta, with s = gamma / sqrt(variance + eps) of a channel of the results.
namespace ts_mma {
namespace @SYM@_scope {
@HEADER@
typedef Pack<Filter, VECTOR> Read;
typedef Pack<Result, VECTOR> Written;

// One layer. A channel's elements of the filter lie `each` in a row; channels follow one another, and begin anew.
struct Layer {
  const Filter *filter;
  const Bias *bias;
  const Norm *mean, *variance, *gamma, *beta;
  Result *filter_out, *bias_out;
  int first, elements, channels, each; // `first` is its first block
  u32 channels_m, channels_s, each_m, each_s;
  float eps;
};

@LAYERS@
TS_MMA_DEVICE float scale_of(const Layer &l, int channel) {
  const float scale = 1.0f / sqrtf(widened(l.variance[channel]) + l.eps);
  return AFFINE ? scale * widened(l.gamma[channel]) : scale;
}

TS_MMA_DEVICE int channel_of(const Layer &l, int at) {
  const int row = divided(at, l.each_m, l.each_s);
  return row - divided(row, l.channels_m, l.channels_s) * l.channels;
}

TS_MMA_DEVICE void bias(const Layer &l, int channel) {
  float v = -widened(l.mean[channel]);
  if constexpr (BIASED) v = widened(l.bias[channel]) + v;
  v *= scale_of(l, channel);
  if constexpr (AFFINE) v += widened(l.beta[channel]);
  narrow(l.bias_out[channel], v);
}

// NOTE: left to itself, ptxas 13.0 spills registers of sm_80 to fit more blocks.
extern "C" __global__ void __launch_bounds__(THREADS, 1) @SYM@(TS_PARAMETERS) {
  const Run run = TS_RUN;
  const Layer l = layer_of(run, blockIdx.x);
  const int block = blockIdx.x - l.first;
  if (block == 0)
    for (int channel = threadIdx.x; channel < l.channels; channel += THREADS) bias(l, channel);
  const bool alike = l.each % VECTOR == 0; // a vector is of one channel
#pragma unroll
  for (int i = 0; i < LOADS; i++) {
    const int at = ((block * LOADS + i) * THREADS + threadIdx.x) * VECTOR;
    if (at + VECTOR <= l.elements) {
      const Read from = *(const Read *)(l.filter + at);
      Written to;
      if (alike) {
        const float scale = scale_of(l, channel_of(l, at));
#pragma unroll
        for (int k = 0; k < VECTOR; k++) narrow(to.v[k], widened(from.v[k]) * scale);
      } else {
#pragma unroll
        for (int k = 0; k < VECTOR; k++) narrow(to.v[k], widened(from.v[k]) * scale_of(l, channel_of(l, at + k)));
      }
      *(Written *)(l.filter_out + at) = to;
    } else
      for (int k = at; k < l.elements; k++) narrow(l.filter_out[k], widened(l.filter[k]) * scale_of(l, channel_of(l, k)));
  }
}
} // namespace @SYM@_scope
} // namespace ts_mma
