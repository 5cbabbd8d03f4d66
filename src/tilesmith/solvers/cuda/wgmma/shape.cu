// One tile of a matrix product: operands by bulk tensor copies into a ring of stages, products by wgmma.
// A warpgroup copies; WARPGROUPS others multiply, on one tile together or (PINGPONG) on a tile each, in turns.
// STORE says how results leave: through a tensor map (MAPPED); as rows of 16 bytes (ROWS), or of 4 that may begin at any
// element (LINES); 16 whole rows of any length in one piece (RUN); as pairs from registers (DIRECT); as they lie there,
// to be summed (PARTIAL).
constexpr int WG_ROWS = 64 * MI;
// K-major rows have 128 bytes at most: a deeper step has several parts, each with PART_K of every row.
constexpr int SIZE = sizeof(Element), WHOLE_K = 128 / SIZE;
// TF32 whose rows are contiguous: lanes read it, since wgmma does not from shared memory.
constexpr bool READ_BY_LANES = A_BY_COLUMNS && SIZE == 4;
constexpr int LINE = 128 / SIZE; // contiguous rows of A that a copy brings
constexpr int PART_K = BLOCK_K < WHOLE_K ? BLOCK_K : WHOLE_K, PARTS = BLOCK_K / PART_K, SPAN = PART_K * SIZE;
constexpr int B_COLS = B_BY_COLUMNS ? (BLOCK_N + SLAB_COLS - 1) / SLAB_COLS * SLAB_COLS : BLOCK_N;
constexpr int A_SLAB = 64 * (A_BY_COLUMNS ? BLOCK_K * SIZE : SPAN); // bytes of 64 rows of A (of a part, when K-major)
constexpr int B_SLAB = SLAB_COLS * BLOCK_K * SIZE;                  // bytes of SLAB_COLS contiguous columns of B
constexpr int A_PART = A_ROWS * SPAN, B_PART = B_COLS * SPAN;
constexpr int A_BYTES = A_ROWS * BLOCK_K * SIZE, B_BYTES = B_COLS * BLOCK_K * SIZE;
constexpr int STAGE = RESIDENT ? A_BYTES : A_BYTES + B_BYTES;
// What the copies bring: of a matrix with fewer rows than a tile, those that exist. The products of the others, whatever
// lies there, are never stored.
constexpr int A_LOADED = A_READ * BLOCK_K * SIZE, B_LOADED = B_READ * BLOCK_K * SIZE;
// Results pass through shared memory 128 bytes of a row at a time.
constexpr int OUT_SIZE = sizeof(Out);
constexpr bool WIDE = OUT_SIZE == 4, NARROW = OUT_SIZE == 1;
constexpr int CHUNK = 128 / OUT_SIZE, CHUNKS = (BLOCK_N + CHUNK - 1) / CHUNK, TAIL = BLOCK_N % CHUNK, BUFFER = 2048;
// Sums as products leave them in a warp's registers: units of 16 x 8, a quad for each lane, STRIP units side by side. Each
// block of a cluster adds up a share of them.
constexpr bool BY_ROWS = STORE == ROWS || STORE == LINES || STORE == RUN;
constexpr int RUN_BYTES = STORE == RUN ? 16 * RUN_COLS * 2 : 0; // a warp's rows, as they lie in memory
constexpr int WARPS = WARPGROUPS * 4, STRIP = BLOCK_N / 8, UNITS = WARPS * MI * STRIP;
constexpr int SHARE = (UNITS + SPLIT - 1) / SPLIT, OWN = SPLIT * SHARE * 512;
constexpr int EXCHANGED = SPLIT > 1 ? OWN + (SPLIT - 1) * SHARE * 512 : 0; // a block's sums, and what it receives
constexpr bool RECEIVE_APART = SPLIT > 1 && EXCHANGED <= APART_BYTES;
constexpr int STAGING = SPLIT > 1 ? (RECEIVE_APART ? (EXCHANGED + 1023) / 1024 * 1024 : 0)
                                  : (STORE == MAPPED || BY_ROWS ? WARPS * (BUFFERS * BUFFER + RUN_BYTES) : 0);
constexpr int RING = (STAGES * STAGE + BEYOND_RING + 1023) / 1024 * 1024; // stores through a tensor map swizzle by 1024 bytes
constexpr int BARRIERS = 512;
constexpr bool WHOLE_SUMS = (Sum)0.5f == 0; // integers, which a float does not hold
// The residual arrives where the results leave from: one copy for each of a warp's chunks (of a warpgroup's, when
// TRANSPOSED), asked for before the products. Where a tile has more chunks than there are buffers, the others are asked
// for as buffers become free, and each buffer has a barrier.
constexpr bool STAGED = RESIDUAL && STORE == MAPPED && !BETA && !WHOLE_SUMS && !RESCALED;
constexpr int TILE_CHUNKS = MI * CHUNKS, ARRIVALS = !STAGED ? 0 : BUFFERS < TILE_CHUNKS ? BUFFERS : 1;
// Results that are finished one pair at a time, since what is added to them lies in global memory.
constexpr bool FINISHED_ALONE =
    STORE == DIRECT || (RESIDUAL && !STAGED) || BETA || (WHOLE_SUMS && (BIAS || NARROW)) || (NARROW && RESCALED);
// Of these, units of which all that is added is under way at once.
#if ONE_AT_ONCE
constexpr int AT_ONCE = 1;
#else
constexpr int AT_ONCE = !(BETA || BIAS || RESIDUAL) ? 1 : TRANSPOSED || REPAIR || STORE == DIRECT ? 2 : 4;
#endif
// While the kernel ahead ends and the first operands are on their way, the warps of a small tile walk once through the text
// of the results, which is then in the caches of instructions.
constexpr bool DRY_RUN = ONCE && MI * BLOCK_N <= 112 && STORE == MAPPED && !FINISHED_ALONE;
// A thread reads its rows' bias before the products.
constexpr bool ROWS_BIAS = BIAS && BIAS_OF_ROW && !WHOLE_SUMS && SPLIT == 1 && STORE != PARTIAL;
// A thread reads two columns' bias before the products, and its warpgroup shares them while the last ones run.
constexpr bool SHARED_BIAS =
    BIAS && !BIAS_OF_ROW && !WHOLE_SUMS && !(NARROW && RESCALED) && SPLIT == 1 && (STORE == MAPPED || BY_ROWS);
constexpr int BIAS_BYTES = SHARED_BIAS ? WARPGROUPS * BLOCK_N * 4 : 0;
static_assert(16 * STAGES + 8 + 8 * WARPS * ARRIVALS <= BARRIERS, "barriers of the residual fit");
static_assert(BLOCK_M == (PINGPONG ? WG_ROWS : WG_ROWS * WARPGROUPS) && SLICED == (STORE == PARTIAL), "as counted");
static_assert(A_ROWS >= A_READ && B_COLS >= B_READ && A_ROWS % 8 == 0, "a stage has room for what is read");
static_assert(!PINGPONG || (WARPGROUPS > 1 && SPLIT == 1), "turns are for several");
static_assert(SLAB_COLS == 64 || (KIND == WRW && STORE != MAPPED), "narrow slabs are stored from registers");
static_assert(RECEIVE_APART || EXCHANGED <= STAGES * STAGE, "partial sums lie in the ring");
static_assert(CAST == 1 || (SPLIT == 1 && !RESIDENT && KIND != WRW), "blocks share columns");
static_assert(CAST_N == 1 || (KIND == GEMM && !SLICED && A_ROWS == BLOCK_M), "blocks share rows");
static_assert(CAST == CAST_M * CAST_N, "as counted");
static_assert(!ONCE || (KIND == GEMM && SPLIT == 1 && !SLICED && !RESIDENT && !BLOCKWISE && FIRST <= STAGES), "one tile a block");
static_assert(SIZE == 2 || (!B_BY_COLUMNS && (!A_BY_COLUMNS || SIZE == 4)), "other types have no transposed products");
static_assert(OUT_SIZE == 2 || !BY_ROWS, "16 bits are stored by rows");
static_assert(!NARROW || STORE != MAPPED || !TRANSPOSED, "bytes are stored along rows");
static_assert((STORE != LINES && STORE != RUN) || (SPLIT == 1 && !TRANSPOSED && KIND != WRW), "whole rows of a tile");
static_assert(STORE != RUN || (RUN_COLS <= BLOCK_N && !REPAIR), "a tile has all columns");
static_assert(!PROMOTED || (!PINGPONG && BLOCK_N % PRODUCT_N == 0), "sums are promoted beside another's products");
static_assert(!RESIDENT || (SPLIT == 1 && !SLICED && KIND != WRW), "what stays is the whole of k");

// Of a stage, and of all.
constexpr int FACTOR_STAGE = BLOCKWISE ? PARTS * (BLOCK_M + OF_COLUMNS) * 4 : 0, FACTOR_BYTES = STAGES * FACTOR_STAGE;
static_assert(THREADS == (WARPGROUPS + 1) * 128, "as counted");
static_assert(RING + STAGING + BARRIERS + BIAS_BYTES + FACTOR_BYTES == SHARED_BYTES, "as counted");
static_assert(!BLOCKWISE || (PROMOTED && SPAN == 128 && PRODUCT_N <= 128), "a factor for each sum");

// Of other widths or operands than the kernel's: never called.
template <int N> TS_DEVICE void product(Sum (&)[N], ts_u64, ts_u64, int) {}
template <int N> TS_DEVICE void product(Sum (&)[N], const ts_u32 (&)[4], ts_u64, int) {}

TS_DEVICE void advance(const Run &run, Pixel &p, const Pixel &by) {
  p.w += by.w, p.h += by.h, p.d += by.d, p.n += by.n;
  if (p.w >= run.base_w) p.w -= run.base_w, p.h++;
  if (p.h >= run.base_h) {
    p.h -= run.base_h;
    if (RANK == 5) p.d++;
    else p.n++;
  }
  if (RANK == 5 && p.d >= run.base_d) p.d -= run.base_d, p.n++;
}
TS_DEVICE void load_pixels(const Run &run, ts_u32 to, const ts_map *map, ts_u32 full, int channel, const Pixel &p,
                           ts_u32 tap) {
  const int w = p.w * run.step_w + run.corner_w, h = p.h * run.step_h + run.corner_h;
  if (RANK == 5) ts_load_pixels5(to, map, full, channel, w, h, p.d * run.step_d + run.corner_d, p.n, tap);
  else ts_load_pixels4(to, map, full, channel, w, h, p.n, tap);
}

