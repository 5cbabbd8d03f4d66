// A thread computes ROWS x COLUMNS results for CHANNELS channels. It reads pixels as words of four channels, exchanges
// bytes so that a word has four pixels of one channel, and multiplies those by four taps at once (dp4a).
namespace ts_mma {
namespace @SYM@_scope {
@HEADER@
static_assert(PIXELS == (COLUMNS - 1) * STRIDE_W + (S - 1) * DILATION_W + 1, "pixels of a row");
static_assert(IN_ROWS == (ROWS - 1) * STRIDE_H + (R - 1) * DILATION_H + 1, "rows of x");
static_assert(WORDS * 4 > (COLUMNS - 1) * STRIDE_W + (4 * FOURS - 1) * DILATION_W + 3, "words that a product reads");

// The channels of a thread in one pixel, which are read at once.
struct __align__(CHANNELS) Pixel {
  u32 word[CHANNELS / 4];
};
struct __align__(4 * sizeof(Out)) Four {
  Out v[4];
};

// Four pixels of four channels become four words of one channel each.
TS_MMA_DEVICE void exchange(const u32 (&pixel)[4], u32 &c0, u32 &c1, u32 &c2, u32 &c3) {
  const u32 a = __byte_perm(pixel[0], pixel[1], 0x5140), b = __byte_perm(pixel[2], pixel[3], 0x5140);
  const u32 c = __byte_perm(pixel[0], pixel[1], 0x7362), d = __byte_perm(pixel[2], pixel[3], 0x7362);
  c0 = __byte_perm(a, b, 0x5410), c1 = __byte_perm(a, b, 0x7632);
  c2 = __byte_perm(c, d, 0x5410), c3 = __byte_perm(c, d, 0x7632);
}

// The pixels at `at`, `at + DILATION_W`, ... of a channel; all is known to the compiler.
TS_MMA_DEVICE u32 four_pixels(const u32 (&words)[WORDS], int at) {
  if constexpr (DILATION_W == 1)
    return at % 4 ? __funnelshift_r(words[at / 4], words[at / 4 + 1], at % 4 * 8) : words[at / 4];
  u32 found = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int p = at + i * DILATION_W;
    found |= (words[p / 4] >> p % 4 * 8 & 0xff) << i * 8;
  }
  return found;
}

TS_MMA_DEVICE void store(const Run &run, int sum, int channel, Out &to) {
  if constexpr (SCALED) {
    float v = (float)sum * run.scale[BY_CHANNEL ? channel : 0];
    if (BIAS) v += run.bias[channel];
    v = rintf(activate(v)); // to nearest even
    to = v != v ? 0 : v < -128.0f ? -128 : v > 127.0f ? 127 : (Out)v;
  } else {
    to = sum;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) @SYM@(TS_PARAMETERS) {
  const Run run = TS_RUN;
  wait_previous();
  const i64 thread = (i64)blockIdx.x * THREADS + threadIdx.x;
  if (thread >= run.threads) return;
  const int vectors = run.channels / CHANNELS;
  int rest = (int)thread;
  const int channel = rest % vectors * CHANNELS;
  rest /= vectors;
  const int column = rest % run.tiles_w * COLUMNS;
  rest /= run.tiles_w;
  const int row = rest % run.tiles_h * ROWS, n = rest / run.tiles_h;
  const int top = row * STRIDE_H - run.pad_h, left = column * STRIDE_W - run.pad_w;
  const signed char *const image = run.x + (i64)n * run.x_n + channel;
  int sums[ROWS][COLUMNS][CHANNELS];
#pragma unroll
  for (int i = 0; i < ROWS; i++)
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
#pragma unroll
      for (int c = 0; c < CHANNELS; c++) sums[i][j][c] = 0;
#pragma unroll
  for (int line = 0; line < IN_ROWS; line++) {
    const int h = top + line;
    Pixel pixels[PIXELS];
#pragma unroll
    for (int p = 0; p < PIXELS; p++) {
      const int w = left + p;
      pixels[p] = Pixel();
      if (h >= 0 && h < run.in_h && w >= 0 && w < run.in_w)
        pixels[p] = *(const Pixel *)(image + ((i64)h * run.x_h + (i64)w * run.x_w));
    }
#pragma unroll
    for (int c = 0; c < CHANNELS; c += 4) {
      u32 words[4][WORDS];
#pragma unroll
      for (int p = 0; p < WORDS; p++) {
        u32 pixel[4];
#pragma unroll
        for (int i = 0; i < 4; i++) pixel[i] = p * 4 + i < PIXELS ? pixels[p * 4 + i].word[c / 4] : 0;
        exchange(pixel, words[0][p], words[1][p], words[2][p], words[3][p]);
      }
#pragma unroll
      for (int i = 0; i < ROWS; i++) {
        const int from = line - i * STRIDE_H, r = from / DILATION_H;
        if (from < 0 || from % DILATION_H || r >= R) continue;
#pragma unroll
        for (int f = 0; f < FOURS; f++) {
          const uint4 taps = run.packed[((i64)(r * FOURS + f) * run.channels + channel + c) / 4];
#pragma unroll
          for (int j = 0; j < COLUMNS; j++) {
            const int at = j * STRIDE_W + f * 4 * DILATION_W;
            sums[i][j][c] = __dp4a((int)four_pixels(words[0], at), (int)taps.x, sums[i][j][c]);
            sums[i][j][c + 1] = __dp4a((int)four_pixels(words[1], at), (int)taps.y, sums[i][j][c + 1]);
            sums[i][j][c + 2] = __dp4a((int)four_pixels(words[2], at), (int)taps.z, sums[i][j][c + 2]);
            sums[i][j][c + 3] = __dp4a((int)four_pixels(words[3], at), (int)taps.w, sums[i][j][c + 3]);
          }
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < ROWS; i++)
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) {
      if (row + i >= run.out_h || column + j >= run.out_w) continue;
      Out *const to = run.y + ((i64)n * run.y_n + (i64)(row + i) * run.y_h + (i64)(column + j) * run.y_w + channel);
#pragma unroll
      for (int c = 0; c < CHANNELS; c += 4) {
        Four four;
#pragma unroll
        for (int e = 0; e < 4; e++) store(run, sums[i][j][c + e], channel + c + e, four.v[e]);
        *(Four *)(to + c) = four;
      }
    }
}
} // namespace @SYM@_scope
} // namespace ts_mma
