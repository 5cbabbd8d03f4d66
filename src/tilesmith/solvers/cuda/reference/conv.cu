namespace @SYM@_scope {
@HEADER@
// fwd and bwd. A group has `on` result channels and `rn` source channels; the reduction is (tap, source channel).
// Where the element lies that a tap meets at position o of the result, or -1.
__device__ inline ts_i64 locate(ts_i64 o, ts_i64 tap, ts_i64 s, ts_i64 p, ts_i64 d, ts_i64 size) {
  if constexpr (!BACK) {
    const ts_i64 i = o * s - p + tap * d;
    return i < size ? i : -1;
  } else { // products outside the image do not exist; a stride leaves gaps between those inside
    ts_i64 i = o + p - tap * d;
    if (i < 0) return -1;
    return split(i, s) == 0 && i < size ? i : -1;
  }
}

// A row of `count` results in the order of their remainders by the stride: its i-th one. Neighbours meet the same taps.
__device__ inline ts_i64 ordered(ts_i64 i, ts_i64 s, ts_i64 count) {
  ts_i64 each = count;
  const ts_i64 more = split(each, s), longer = more * (each + 1); // the first `more` remainders have one result more
  const bool first = i < longer;
  if (!first) i -= longer;
  const ts_i64 at = split(i, first ? each + 1 : each);
  return at * s + i + (first ? 0 : more);
}

// A remainder's place in a set of 64; those of longer strides share places.
__device__ inline ts_u64 member(ts_i64 at, ts_i64 s) { return 1ull << (split(at, s) & 63); }

extern "C" __global__ void __launch_bounds__(THREADS, 1) @SYM@(TS_PARAMETERS) {
  const Run run = TS_RUN;
  if (GUARDED && *run.flag == 0) return;
  __shared__ ts_i64 image[TM], out[TM], so[Q], wo[Q];
  __shared__ int pd[TM], ph[TM], pw[TM], qd[Q], qh[Q], qw[Q];
  __shared__ ts_u64 rests[3][BACK ? TM : 1], met[3]; // remainders of results, by axis
  __shared__ int meets[Q];
  __shared__ bool exists[SKIPS ? Q : 1][SKIPS ? TM : 1];
  __shared__ Acc a[Q][TM], b[Q][TN];
  const int t = threadIdx.x, tm = t / TNT, tn = t % TNT;
  const bool gaps = BACK && sd * sh * sw > 1;
  const ts_i64 positions = n * od * oh * ow, depth = rn * fd * fh * fw;
  const ts_i64 blocks = (on + TN - 1) / TN, tiles = (positions + TM - 1) / TM * blocks * groups;
  for (ts_i64 item = blockIdx.x; item < tiles; item += gridDim.x) {
    ts_i64 m0 = item;
    const ts_i64 n0 = split(m0, blocks) * TN, group = split(m0, groups);
    m0 *= TM;
    for (int i = t; i < TM; i += THREADS) {
      ts_i64 at = m0 + i;
      image[i] = -1;
      if (gaps) rests[0][i] = rests[1][i] = rests[2][i] = 0;
      if (at >= positions) continue;
      pw[i] = (int)split(at, ow), ph[i] = (int)split(at, oh), pd[i] = (int)split(at, od);
      if (gaps) {
        pw[i] = (int)ordered(pw[i], sw, ow);
        rests[0][i] = member(pd[i] + padd, sd), rests[1][i] = member(ph[i] + padh, sh);
        rests[2][i] = member(pw[i] + padw, sw);
      }
      image[i] = at * src0;
      out[i] = at * out0 + pd[i] * out2 + ph[i] * out3 + pw[i] * out4;
    }
    if (gaps) {
      __syncthreads();
      if (t < 3) {
        met[t] = 0;
        for (int i = 0; i < TM; i++) met[t] |= rests[t][i];
      }
      __syncthreads();
    }
    Acc c[RM][RN] = {};
    for (ts_i64 k0 = 0; k0 < depth; k0 += Q) {
      if (t < Q) {
        ts_i64 at = k0 + t;
        qd[t] = -1;
        if (at < depth) {
          const ts_i64 r = split(at, rn);
          qw[t] = (int)split(at, fw), qh[t] = (int)split(at, fh), qd[t] = (int)at;
          so[t] = place_of(group * rn + r, src1, srcv);
          wo[t] = at * w2 + qh[t] * w3 + qw[t] * w4 + (BACK ? (group * rn + r) * w0 : place_of(r, w1, wv));
        }
        if (gaps)
          meets[t] = qd[t] >= 0 && (met[0] & member(qd[t] * dd, sd)) && (met[1] & member(qh[t] * dh, sh)) &&
                     (met[2] & member(qw[t] * dw, sw));
      }
      __syncthreads();
      if (gaps) {
        int some = 0;
        for (int q = 0; q < Q; q++) some |= meets[q];
        if (!some) { // no result of the tile meets one of these taps
          __syncthreads();
          continue;
        }
      }
      for (int i = t; i < TM * Q; i += THREADS) {
        const int m = src1 <= src4 ? i / Q : i % TM, q = src1 <= src4 ? i % Q : i / TM;
        ts_i64 at = -1;
        if (image[m] >= 0 && qd[q] >= 0) {
          const ts_i64 vd = locate(pd[m], qd[q], sd, padd, dd, id);
          const ts_i64 vh = locate(ph[m], qh[q], sh, padh, dh, ih);
          const ts_i64 vw = locate(pw[m], qw[q], sw, padw, dw, iw);
          if ((vd | vh | vw) >= 0) at = image[m] + so[q] + vd * src2 + vh * src3 + vw * src4;
        }
        a[q][m] = at < 0 ? 0 : (Acc)load_first(src, at);
        if constexpr (SKIPS) exists[q][m] = at >= 0;
      }
      for (int i = t; i < TN * Q; i += THREADS) {
        const int m = i / Q, q = i % Q;
        const ts_i64 channel = n0 + m;
        b[q][m] = qd[q] < 0 || channel >= on
                      ? 0
                      : (Acc)load_second(w, wo[q] + (BACK ? place_of(channel, w1, wv) : (group * on + channel) * w0));
      }
      TS_MULTIPLY(SKIPS && !exists[q][tm + i * TMT])
    }
#pragma unroll
    for (int i = 0; i < RM; i++)
#pragma unroll
      for (int j = 0; j < RN; j++) {
        const int m = tm + i * TMT;
        ts_i64 channel = n0 + tn + j * TNT;
        if (image[m] < 0 || channel >= on) continue;
        channel += group * on;
        const ts_i64 at = out[m] + place_of(channel, out1, outv);
        Value v = (Signed)c[i][j];
        if constexpr (SCALED) v *= run.scale[SCALE_AT_CHANNEL ? channel : 0];
        store(y, at, finished(v, run, channel, at));
      }
    __syncthreads();
  }
}
} // namespace @SYM@_scope
