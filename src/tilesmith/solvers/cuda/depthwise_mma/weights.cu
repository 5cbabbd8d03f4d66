constexpr int LANES = 32, CHANNELS = PLANES * 4;
constexpr int PLANE = plane_bytes(PIXELS), ROW = UNITS * PLANES * PLANE, ROWS_BYTES = GROUPS * ROWS_IN * ROW;
constexpr int PLANE_DY = plane_bytes(COLUMNS), ROW_DY = UNITS * PLANES * PLANE_DY;
constexpr int STAGE = ROWS_BYTES + GROUPS * ROW_DY, PAIRS = (PRODUCTS + 1) / 2;
static_assert(STAGES * STAGE <= SHARED_BYTES && PLANES * KD * R * S * 16 <= SHARED_BYTES, "the ring, then the sums");

// A product: (4 pixels of x, 4 channels) x (2 pixels of dy, these channels), summed over 16 pairs of pixels. Where
// channels agree, the distance of the pixels is a column of the filter. A row of x meets the last rows of dy, which
// registers hold.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) @SYM@(TS_PARAMETERS) {
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ Unit units[UNITS];
  const Run run = TS_RUN;
  const int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
  const int part = divided(blockIdx.x, run.channel_blocks_m, run.channel_blocks_s), c_block = (blockIdx.x - part * run.channel_blocks) * CHANNELS;
  const int r0 = blockIdx.y * R;
  const Image image = {run.x,    run.in_n, run.in_depth, run.in_row, run.in_column,
                       run.in_d, run.in_h, run.in_w};
  const Image image_dy = {run.dy,    run.out_n, run.out_depth, run.out_row, run.out_column,
                          run.out_d, run.out_h, run.out_w};
  const int plane = threadIdx.x % PLANES, c_copy = c_block + plane * 4 < run.channels ? c_block + plane * 4 : -1;
  const u32 ring = shared_address(memory);
  // Addresses of rows of ldmatrix: 16 pairs of pixels, at two (dy: one) pairs of pixels.
  const u32 x_from = ring + warp * PLANE + lane % 8 * 2 * STRIDE_W * 8 + lane / 8 % 2 * 16;
  const u32 dy_from = ring + ROWS_BYTES + warp * PLANE_DY + lane % 8 * 16;

  float sums[KD * R][STEPS][4] = {};
  wait_previous();
#pragma unroll 1
  for (int item = part; item < run.items; item += run.parts) {
    const int strip = divided(item, run.teams_m, run.teams_s), team = item - strip * run.teams;
    const int p0 = strip * run.strip_rows, rows = smaller(run.strip_rows, run.out_h - p0);
    const int groups = rows + LIVE - 1, stages = (groups + GROUPS - 1) / GROUPS;
    __syncthreads();
    if (threadIdx.x < UNITS) units[threadIdx.x] = unit_at(run, team * UNITS + threadIdx.x);
    __syncthreads();
    Copies<PIXELS> copies(image, units, c_copy, STRIDE_W, PAD_W, STRIDE_D, PAD_D);
    Copies<COLUMNS> copies_dy(image_dy, units, c_copy, 1, 0, 1, 0);
    const int first = p0 * STRIDE_H + r0 * DILATION_H - PAD_H;
    copies.advance(image, first), copies_dy.advance(image_dy, p0);
    // Stages are fetched in their order.
    auto fetch = [&](int stage, int slot) {
#pragma unroll
      for (int group = 0; group < GROUPS; group++) {
        const int at = stage * GROUPS + group;
        if (at >= groups) continue;
#pragma unroll
        for (int sub = 0; sub < ROWS_IN; sub++)
          if (row_used(sub % STRIDE_H))
            copies.row(image, ring + slot * STAGE + (group * ROWS_IN + sub) * ROW, first + at * STRIDE_H + sub % STRIDE_H,
                       group * STRIDE_H + sub % STRIDE_H, true, sub / STRIDE_H * DILATION_D);
        copies_dy.row(image_dy, ring + slot * STAGE + ROWS_BYTES + group * ROW_DY, p0 + at, group, at < rows, 0);
      }
      copies.advance(image, GROUPS * STRIDE_H), copies_dy.advance(image_dy, GROUPS);
    };
    u32 by[LIVE][PAIRS * 2][2] = {};
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
      if (s < stages) fetch(s, s);
      copy_commit();
    }
    int slot = 0;
#pragma unroll 1
    for (int stage = 0; stage < stages; stage++) {
      copy_wait<STAGES - 2>();
      __syncthreads();
      if (stage + STAGES - 1 < stages) fetch(stage + STAGES - 1, slot == 0 ? STAGES - 1 : slot - 1);
      copy_commit();
#pragma unroll
      for (int group = 0; group < GROUPS; group++) {
        if (GROUPS > 1 && stage * GROUPS + group >= groups) break;
#pragma unroll
        for (int m = 0; m < PAIRS * 2; m++)
#pragma unroll
          for (int i = 0; i + 1 < LIVE; i++)
            by[i][m][0] = by[i + 1 < LIVE ? i + 1 : i][m][0], by[i][m][1] = by[i + 1 < LIVE ? i + 1 : i][m][1];
#pragma unroll
        for (int pair = 0; pair < PAIRS; pair++) {
          const int product = smaller(pair * 2 + lane / 16, PRODUCTS - 1), half = 2 * product + lane / 8 % 2;
          u32 four[4];
          load_tiles<true>(four, dy_from + slot * STAGE + group * ROW_DY + half / HALVES * PLANES * PLANE_DY +
                                     half % HALVES * 128);
          by[LIVE - 1][pair * 2][0] = four[0], by[LIVE - 1][pair * 2][1] = four[1];
          by[LIVE - 1][pair * 2 + 1][0] = four[2], by[LIVE - 1][pair * 2 + 1][1] = four[3];
        }
#pragma unroll
        for (int sub = 0; sub < ROWS_IN; sub++) {
          const int e = sub % STRIDE_H;
          if (!row_used(e)) continue;
#pragma unroll
          for (int k = 0; k < STEPS; k++)
#pragma unroll
            for (int m = 0; m < PRODUCTS; m++) {
              const int half = 2 * m + lane / 16;
              u32 a[4];
              load_tiles<true>(a, x_from + slot * STAGE + (group * ROWS_IN + sub) * ROW +
                                      half / HALVES * PLANES * PLANE + half % HALVES * 16 * STRIDE_W * 8 + k * 32);
#pragma unroll
              for (int r = 0; r < R; r++) {
                if (!reads(r, e)) continue;
                const u32(&b)[2] = by[LIVE - 1 - r * DILATION_H / STRIDE_H][m];
                multiply(Element(), sums[sub / STRIDE_H * R + r][k], a, b[0], b[1]);
              }
            }
        }
      }
      slot = slot + 1 == STAGES ? 0 : slot + 1;
    }
    copy_wait<0>();
  }
  __syncthreads();

  // A lane has two sums of each product whose channels agree; first those of even pixels of dy, then of odd ones.
  float *const gathered = (float *)memory;
  const int c = lane / 4 % 4, place = lane % 4;
#pragma unroll
  for (int second = 0; second < 2; second++) {
    if (place == second * 2 + c / 2) {
#pragma unroll
      for (int tap = 0; tap < KD * R; tap++)
#pragma unroll
        for (int k = 0; k < STEPS; k++)
#pragma unroll
          for (int half = 0; half < 2; half++) {
            const int column = 4 * k + lane / 16 + 2 * half - second * STRIDE_W, s = column / DILATION_W;
            if (column < 0 || column % DILATION_W || s >= S) continue;
            float *const to = gathered + ((tap * S + s) * PLANES + warp) * 4 + c;
            const float v = c % 2 ? sums[tap][k][half * 2 + 1] : sums[tap][k][half * 2];
            *to = second ? *to + v : v;
          }
    }
    __syncthreads();
  }
#pragma unroll 1
  for (int i = threadIdx.x; i < KD * R * S * CHANNELS; i += THREADS) {
    const int channel = c_block + i % CHANNELS, tap = i / CHANNELS, s = tap % S, r = tap / S % R + r0, kd = tap / S / R;
    if (r < FILTER_ROWS && channel < run.channels)
      run.partial[(i64)part * run.results + ((kd * FILTER_ROWS + r) * S + s) * run.channels + channel] = gathered[i];
  }
}
