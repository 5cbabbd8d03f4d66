// Backward data: rows of a product are positions, its columns elements of a position's part of a row of dx. A warp holds
// all of its positions' pixels of dy, and multiplies them with one part of the filter after the other. Rows of results
// are staged as they lie in memory.
constexpr int THREADS = WARPS_M * WARPS_N * 32, TAPS = TAPS_D * TAPS_H * TAPS_W;
constexpr int WINDOW_D = TAPS_D, WINDOW_H = TILE_H + TAPS_H - 1, WINDOW_W = TILE_W + TAPS_W - 1;
constexpr int PIECES = (CHANNELS + 7) / 8, K_STEPS = (TAPS * PIECES + 1) / 2, K_PAIRS = (K_STEPS + 1) / 2;
constexpr int TILES_N = STEP / 8, EACH_N = (TILES_N + WARPS_N - 1) / WARPS_N, FILTER_BYTES = TILES_N * K_PAIRS * 512;
constexpr int ROWS = TILE_H * TILE_W, EACH_M = (ROWS + WARPS_M * 16 - 1) / (WARPS_M * 16);
constexpr int WINDOW_AT = PHASE_ROWS * FILTER_BYTES, STAGED_AT = WINDOW_AT + 2 * WINDOW_BYTES;
constexpr int PLACES = WINDOW_D * WINDOW_H * WINDOW_W * PIECES, LOADS = (PLACES + THREADS - 1) / THREADS;
constexpr int AT_ONCE = EACH_N % 4 == 0 ? 4 : EACH_N % 3 == 0 || EACH_N > 8 ? 3 : EACH_N % 2 == 0 ? 2 : 1; // columns by 8
constexpr int LENGTH = TILE_W * STEP; // elements of a tile's row of results
static_assert(WINDOW_BYTES >= WINDOW_D * WINDOW_H * WINDOW_W * PIXEL_BYTES && PIXEL_BYTES >= PIECES * 16, "as counted");
static_assert(STAGED_AT + PHASE_ROWS * TILE_H * STAGED_ROW * (int)sizeof(Staged) <= SHARED_BYTES, "all fit");
static_assert(STAGED_ROW >= LENGTH + SHIFT && STAGED_ROW % 8 == 0 && STEP % 8 == 0, "as counted");

// The bytes from a position's first piece to piece `q` of the sums.
TS_MMA_CONSTANT int piece_offset(int q) {
  const int tap = q < TAPS * PIECES ? q / PIECES : 0, piece = q < TAPS * PIECES ? q % PIECES : 0;
  const int d = TAPS_D - 1 - tap / (TAPS_H * TAPS_W), h = TAPS_H - 1 - tap / TAPS_W % TAPS_H, w = TAPS_W - 1 - tap % TAPS_W;
  return ((d * WINDOW_H + h) * WINDOW_W + w) * PIXEL_BYTES + piece * 16;
}

// The image, and the first position of a tile.
struct Tile {
  int n, d, h, w;
};
TS_MMA_DEVICE Tile tile_of(const Run &run, int i) {
  const int w = i % run.tiles_w, line = i / run.tiles_w, h = line % run.tiles_h, plane = line / run.tiles_h;
  return {plane / run.base_d, run.first_d + plane % run.base_d, run.first_h + h * TILE_H, run.first_w + w * TILE_W};
}

// A result that is no number: is it one by the definition, which knows no zero weights, nor zeros outside of dy?
TS_MMA_DEVICE float exact(const Run &run, int n, int d, int h, int element) {
  float sum = 0.0f;
  const int column = (element + PAD) % STEP, position = (element + PAD) / STEP;
#pragma unroll 1
  for (int tap = 0; tap < FILTER_D * FILTER_H * TAPS_W; tap++) {
    const int kd = tap / (FILTER_H * TAPS_W), kh = tap / TAPS_W % FILTER_H, at = column + tap % TAPS_W * STEP;
    const int id = d + run.pad_d - kd, ih = h + run.pad_h - kh, w = position - tap % TAPS_W;
    if (id % STRIDE_D || ih % STRIDE_H || at >= RUN) continue;
    const int td = id / STRIDE_D, th = ih / STRIDE_H;
    if ((u32)td >= (u32)run.size_d || (u32)th >= (u32)run.size_h || (u32)w >= (u32)run.size_w) continue;
    const Element *const from = run.dy + (n * run.y_n + td * run.y_d + th * run.y_h + w * run.y_w);
    const Element *const by = run.filter + (kd * run.w_d + kh * run.w_h + at);
#pragma unroll 1
    for (int k = 0; k < CHANNELS; k++) sum = added_product(widened(from[k]), widened(by[k * run.w_k]), sum);
  }
  return sum;
}

TS_MMA_DEVICE float finished(const Run &run, float v, i64 at, int column) {
  if constexpr (BIAS) v += widened(run.bias[column % COLS]);
  if constexpr (RESIDUAL) v += widened(run.residual[at]);
  return activate(v);
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) @SYM@(TS_PARAMETERS) {
  extern __shared__ __align__(128) unsigned char memory[];
  const Run run = TS_RUN;
  const u32 base = shared_address(memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warp_m = warp / WARPS_N, warp_n = warp % WARPS_N;
  const int first_phase = blockIdx.x % run.groups * PHASE_ROWS, stride = gridDim.x / run.groups;
  wait_previous();
  const uint4 *const parts = run.packed + (i64)first_phase * (FILTER_BYTES / 16);
#pragma unroll 4
  for (int i = threadIdx.x; i < PHASE_ROWS * FILTER_BYTES / 16; i += THREADS) copy_async<16>(base + i * 16, parts + i, 16);

  // Channels that come one by one pass through registers, and are put where they belong behind the products.
  u32 held[IN_VECTOR == 1 ? LOADS : 1][4];
  const auto load = [&](int i, int stage) {
    const Tile t = tile_of(run, i);
    constexpr int VALUES = IN_VECTOR == 1 ? 8 : IN_VECTOR, PARTS = 8 / VALUES;
#pragma unroll(IN_VECTOR == 1 ? LOADS : 4)
    for (int l = 0; l < (IN_VECTOR == 1 ? LOADS : LOADS * PARTS); l++) {
      const int place = l * THREADS + threadIdx.x, piece = place / PARTS % PIECES, pixel = place / PARTS / PIECES;
      if (place >= PLACES * PARTS) break;
      const int c = piece * 8 + place % PARTS * VALUES, line = pixel / WINDOW_W;
      const int d = t.d - (TAPS_D - 1) + line / WINDOW_H, h = t.h - (TAPS_H - 1) + line % WINDOW_H;
      const int w = t.w - (TAPS_W - 1) + pixel % WINDOW_W;
      const bool seen = (u32)d < (u32)run.size_d && (u32)h < (u32)run.size_h && (u32)w < (u32)run.size_w;
      const int valid = seen ? larger(smaller(CHANNELS - c, VALUES), 0) : 0;
      const Element *const from =
          valid ? run.dy + (t.n * run.y_n + d * run.y_d + h * run.y_h + w * run.y_w + c) : run.dy;
      if constexpr (IN_VECTOR == 1) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const u32 low = 2 * e < valid ? load_bits<2>(from + 2 * e, 2) : 0;
          held[l][e] = low | (2 * e + 1 < valid ? load_bits<2>(from + 2 * e + 1, 2) << 16 : 0);
        }
      } else {
        const u32 to = base + WINDOW_AT + stage * WINDOW_BYTES + pixel * PIXEL_BYTES + c * 2;
        copy_async<IN_VECTOR * 2>(to, from, valid * 2);
      }
    }
  };
  const auto put = [&](int stage) {
    if constexpr (IN_VECTOR == 1) {
#pragma unroll
      for (int l = 0; l < LOADS; l++) {
        const int place = l * THREADS + threadIdx.x;
        const u32 to = base + WINDOW_AT + stage * WINDOW_BYTES + place / PIECES * PIXEL_BYTES + place % PIECES * 16;
        if (place < PLACES) shared_store16(to, held[l][0], held[l][1], held[l][2], held[l][3]);
      }
    }
  };
  int tile = blockIdx.x / run.groups;
  load(tile, 0);
  put(0);
  copy_commit();

  u32 rows[EACH_M];
  int places[EACH_M][2]; // where a lane's two rows of results are staged
#pragma unroll
  for (int i = 0; i < EACH_M; i++) {
    const int first = (warp_m * EACH_M + i) * 16, m = first + lane % 16 < ROWS ? first + lane % 16 : 0;
    rows[i] = base + WINDOW_AT + (m / TILE_W * WINDOW_W + m % TILE_W) * PIXEL_BYTES;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int own = first + half * 8 + lane / 4;
      places[i][half] = own < ROWS ? own / TILE_W * STAGED_ROW + own % TILE_W * STEP + SHIFT : -1;
    }
  }
  Staged *const staged = (Staged *)(memory + STAGED_AT);
  const bool upper = lane >= 16;

#pragma unroll 1
  for (int stage = 0; tile < run.tiles; tile += stride, stage ^= 1) {
    copy_wait<0>();
    __syncthreads();
    const bool more = tile + stride < run.tiles;
    if (more) load(tile + stride, stage ^ 1);
    copy_commit();
    u32 a[EACH_M][K_STEPS][4];
#pragma unroll
    for (int i = 0; i < EACH_M; i++)
#pragma unroll
      for (int s = 0; s < K_STEPS; s++)
        load_tiles<false>(a[i][s], rows[i] + stage * WINDOW_BYTES +
                                       (upper ? (u32)piece_offset(2 * s + 1) : (u32)piece_offset(2 * s)));
    bool no_number = false;
#pragma unroll 1
    for (int phase = 0; phase < PHASE_ROWS; phase++) {
      const unsigned char *const filter = memory + phase * FILTER_BYTES + lane * 16;
      Staged *const to = staged + phase * TILE_H * STAGED_ROW;
#pragma unroll 1
      for (int j = 0; j < EACH_N; j += AT_ONCE) {
        const int n = warp_n * EACH_N + j;
        uint4 b[AT_ONCE][K_PAIRS];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++)
#pragma unroll
          for (int q = 0; q < K_PAIRS; q++)
            b[u][q] = *(const uint4 *)(filter + (smaller(n + u, TILES_N - 1) * K_PAIRS + q) * 512);
#pragma unroll
        for (int i = 0; i < EACH_M; i++) {
          float sums[AT_ONCE][4] = {};
#pragma unroll
          for (int s = 0; s < K_STEPS; s++)
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++)
              multiply(Element(), sums[u], a[i][s], s % 2 ? b[u][s / 2].z : b[u][s / 2].x,
                       s % 2 ? b[u][s / 2].w : b[u][s / 2].y);
#pragma unroll
          for (int u = 0; u < AT_ONCE; u++) {
            const int column = (n + u) * 8 + lane % 4 * 2;
            const bool wanted = j + u < EACH_N && n + u < TILES_N;
#pragma unroll
            for (int half = 0; half < 2; half++) {
              float two[2];
#pragma unroll
              for (int e = 0; e < 2; e++) {
                two[e] = sums[u][half * 2 + e];
                no_number |= two[e] != two[e];
                // With a residual the epilogue comes where it is read.
                if constexpr (!RESIDUAL) two[e] = finished(run, two[e], 0, column + e);
              }
              Staged *const pair = to + places[i][half] + column;
              if (!wanted || places[i][half] < 0) continue;
              if constexpr (SHIFT % 2 == 0) *(Pack<Staged, 2> *)pair = narrowed(Staged(), two[0], two[1]);
              else narrow(pair[0], two[0]), narrow(pair[1], two[1]);
            }
          }
        }
      }
    }
    put(stage ^ 1);
    const bool repair = __syncthreads_or(no_number);
    const Tile t = tile_of(run, tile);
    const int first = t.w * STEP - PAD; // element of the row that is staged first
    const int begin = larger(first, 0), end = smaller(first + LENGTH, run.row);
#pragma unroll 1
    for (int line = 0; line < PHASE_ROWS * TILE_H; line++) {
      const int phase = first_phase + line / TILE_H;
      const int d = t.d * STRIDE_D - run.pad_d + phase / STRIDE_H;
      const int h = (t.h + line % TILE_H) * STRIDE_H - run.pad_h + phase % STRIDE_H;
      if ((u32)d >= (u32)run.in_d || (u32)h >= (u32)run.in_h) continue;
      const i64 line_at = t.n * run.x_n + d * run.x_d + h * run.x_h;
      const Staged *const from = staged + line * STAGED_ROW;
      Out *const to = run.out + line_at;
      if (RESIDUAL || repair) {
#pragma unroll 1
        for (int at = begin + threadIdx.x; at < end; at += THREADS) {
          float v = widened(from[at - first + SHIFT]);
          const bool wrong = v != v;
          if (wrong) v = exact(run, t.n, d, h, at);
          if (RESIDUAL || wrong) v = finished(run, v, line_at + at, (at + PAD) % STEP);
          narrow(to[at], v);
        }
        continue;
      }
      typedef Pack<Out, OUT_VECTOR> Vector;
#pragma unroll 4
      for (int i = threadIdx.x * OUT_VECTOR; i < LENGTH + SHIFT; i += THREADS * OUT_VECTOR) {
        const int at = first - SHIFT + i;
        const Vector found = *(const Vector *)(from + i);
        if (at >= begin && at + OUT_VECTOR <= end) {
          *(Vector *)(to + at) = found;
        } else {
#pragma unroll
          for (int e = 0; e < OUT_VECTOR; e++)
            if (at + e >= begin && at + e < end) to[at + e] = found.v[e];
        }
      }
    }
  }
  copy_wait<0>();
}
