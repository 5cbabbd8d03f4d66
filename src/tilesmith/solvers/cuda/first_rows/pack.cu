// Packs the filter for blocks of columns: of each variant and step two matrices of 8 k, each of rows of 16 bytes, a column
// a row. What does not exist is zero.
extern "C" __global__ void __launch_bounds__(256) @SYM@(TS_PARAMETERS) {
  const Run run = TS_RUN;
  const int at = blockIdx.x * 256 + threadIdx.x;
  if (at >= run.elements) return;
  const int n = at / 8 % BLOCK_N, step = at / 16 / BLOCK_N % (VARIANTS * STEPS);
  const int block = at / 16 / BLOCK_N / (VARIANTS * STEPS), half = at / 8 / BLOCK_N % 2;
  const u32 word = words[step * 8 + half * 4 + at % 8 / 2];
  const int d = word >> 26, r = word >> 18 & 255, e = (int)(word & 0x3ffff) - 1 + at % 2;
  Element v = {};
  if (word != ~0u && e >= 0 && e < S * C && block * BLOCK_N + n < K)
    v = run.w[(i64)(block * BLOCK_N + n) * run.w_k + (i64)d * run.w_d + (i64)r * run.w_h + (i64)(e / C) * run.w_w +
              (i64)(e % C) * run.w_c];
  run.packed[at] = v;
}
