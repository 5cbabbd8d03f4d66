// The bias of two columns, of which the second may not exist: a pair of 16 bits (bytes are bf16 there), or two floats.
TS_DEVICE void read_bias(const ts_bf16 *from, bool both, ts_u32 (&words)[2]) {
  words[0] = both ? *(const ts_u32 *)from : from->bits;
}
TS_DEVICE void read_bias(const ts_fp16 *from, bool both, ts_u32 (&words)[2]) {
  words[0] = both ? *(const ts_u32 *)from : from->bits;
}
template <typename T> TS_DEVICE void read_bias(const T *from, bool both, ts_u32 (&words)[2]) {
  const float low = ts_float(from[0]), high = both ? ts_float(from[1]) : 0.0f;
  if (NARROW) words[0] = ts_pack(ts_bf16(), low, high);
  else words[0] = __float_as_uint(low), words[1] = __float_as_uint(high);
}
TS_DEVICE void put_bias(ts_u32 to, const ts_u32 (&words)[2]) {
  float two[2] = {__uint_as_float(words[0]), __uint_as_float(words[1])};
  if (!WIDE) ts_unpack(BiasPair(), words[0], two[0], two[1]);
  ts_shared_store2(to, two[0], two[1]);
}
TS_DEVICE void bias_of(ts_u32 from, float (&two)[2]) { ts_shared_load2(from, two[0], two[1]); }

// Finishes the quads of N units side by side, and stores them: two neighbours of a row, and of the eighth row from there.
// `low` and `high` are where the rows lie. What is added to all of them is under way at once: a load that waits behind a
// branch takes 600 cycles.
template <int N, bool STORED>
TS_DEVICE void finish_units(const Run &run, Sum *sums, int row, int column, ts_i64 low, ts_i64 high,
                            const float (&rows_bias)[2], ts_u32 columns_bias) {
  Added added[N][2];
  float bias[N][2] = {};
  bool there[N][2], both[N];
#pragma unroll
  for (int i = 0; i < N; i++) {
    const int c = column + i * 8;
    const ts_i64 off = column_at(run, c);
    both[i] = EVEN || column_at(run, c + 1) >= 0;
    if (SHARED_BIAS) bias_of(columns_bias + i * 32, bias[i]);
    else if (BIAS && !BIAS_OF_ROW) load_bias(run, row, off >= 0 ? c : 0, both[i] && off >= 0, bias[i]);
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const ts_i64 line = e ? high : low;
      there[i][e] = off >= 0 && line >= 0;
      // What does not exist takes the first element's.
      added[i][e] = added_to(run, there[i][e] ? line + off : 0, EVEN || (both[i] && there[i][e]));
    }
  }
#pragma unroll
  for (int i = 0; i < N; i++)
#pragma unroll
    for (int e = 0; e < 2; e++) {
      Sum *const v = sums + 4 * i + 2 * e;
      if (!there[i][e]) continue;
      Value first = v[0], second = v[1];
      if (BIAS && BIAS_OF_ROW) {
        if (ROWS_BIAS) bias[i][0] = bias[i][1] = rows_bias[e];
        else load_bias(run, row + e * 8, column, false, bias[i]);
      }
      finish(run, first, second, row + e * 8, column + i * 8, added[i][e], bias[i], both[i]);
      if (STORED) store_two(run, first, second, (e ? high : low) + column_at(run, column + i * 8), both[i]);
      else v[0] = first, v[1] = second;
    }
}

// A zero beyond the edge of dy met an Inf or NaN of the filter: only products that exist count.
TS_DEVICE void repair(Run run, const Work &w, int row, int column, ts_i64 at) {
  if (GROUPED)
    run.pixels += w.group * run.channels, run.filter += (ts_i64)w.group * run.channels * run.filter_row;
  const Pixel p = pixel_at(run, row);
  Value none = 0;
  Value sum = add_existing(run, 0.0f, p.w, p.h, p.d, p.n, first_tap(w.layer), first_tap(w.layer + 1), column);
  finish(run, sum, none, row, column, at, false);
  ts_narrow(run.out + at, sum);
}

// Two neighbours of the row that begins at element `base`.
TS_DEVICE void finish_and_store(const Run &run, const Work &w, Value a, Value b, int row, int column, ts_i64 base) {
  const ts_i64 off = column_at(run, column);
  if (off < 0) return;
  const bool both = EVEN || column_at(run, column + 1) >= 0;
  finish(run, a, b, row, column, base + off, both);
  store_two(run, a, b, base + off, both);
  if (REPAIR && a != a) repair(run, w, row, column, base + off);
  if (REPAIR && both && b != b) repair(run, w, row, column + 1, base + off + 1);
}

// Partial sums of a slice of a tile, in units.
TS_DEVICE Quad *partial_at(const Run &run, const Work &w) {
  const int of = GROUPED ? w.layer * run.groups + w.group : w.layer;
  const ts_i64 layer = w.slice * run.layers + of, row = layer * run.all_m + w.m;
  return (Quad *)run.partial + (row * run.tiles_n + w.n) * (BLOCK_M * BLOCK_N / 4);
}

// --- the sum over a cluster ---
// Units that a warp adds up at once: as many as leave no warp idle.
TS_DEVICE constexpr int units_at_once() {
  for (int n = 4; n > 1; n /= 2)
    if (STRIP % n == 0 && SHARE % n == 0 && SHARE / n >= WARPS) return n;
  return 1;
}
// Every unit goes to the block that adds it up.
TS_DEVICE void send(const Sum (&sums)[MI][BLOCK_N / 2], ts_u32 own, ts_u32 received, int rank, int warp, int lane) {
  constexpr int MINE = MI * STRIP;
  const int begin = warp * MINE, end = begin + MINE;
#pragma unroll
  for (int m = 0; m < MI; m++)
#pragma unroll
    for (int j = 0; j < STRIP; j++)
      ts_shared_store4(own + ((begin + m * STRIP + j) * 32 + lane) * 16, sums[m] + 4 * j);
  ts_async_fence();
  __syncwarp();
  ts_cluster_wait(); // until the peers can receive
  if (lane == 0)
    for (int unit = begin; unit < end;) {
      const int owner = unit / SHARE, next = (owner + 1) * SHARE < end ? (owner + 1) * SHARE : end;
      const int place = (rank < owner ? rank : rank - 1) * SHARE + unit - owner * SHARE;
      if (owner != rank)
        ts_peer_copy(ts_peer_address(own + OWN + place * 512, owner), own + unit * 512, (next - unit) * 512,
                     ts_peer_address(received, owner));
      unit = next;
    }
}
TS_DEVICE void add_and_store(const Run &run, const Work &w, ts_u32 own, int rank, int warp, int lane) {
  constexpr int N = units_at_once();
  const int begin = rank * SHARE, end = begin + SHARE < UNITS ? begin + SHARE : UNITS;
  const int in_row = lane >> 2, in_column = (lane & 3) * 2;
  for (int unit = begin + warp * N; unit < end; unit += WARPS * N) {
    Sum v[N][4];
#pragma unroll
    for (int peer = 0; peer < SPLIT; peer++) {
      const int at = peer == rank ? unit : SPLIT * SHARE + (peer < rank ? peer : peer - 1) * SHARE + unit - begin;
#pragma unroll
      for (int i = 0; i < N; i++) {
        Sum u[4];
        ts_shared_load4(own + ((at + i) * 32 + lane) * 16, u);
        for (int e = 0; e < 4; e++) v[i][e] = peer ? v[i][e] + u[e] : u[e];
      }
    }
    const int strip = unit / STRIP, column0 = w.n * BLOCK_N + (unit - strip * STRIP) * 8;
    const int row0 = w.m * BLOCK_M + (strip / (4 * MI) * MI + strip % MI) * 64 + strip / MI % 4 * 16;
    if (STORE == PARTIAL) {
      Quad *to = partial_at(run, w) + ((row0 - w.m * BLOCK_M) / 16 * STRIP + unit - strip * STRIP) * 32 + lane;
#pragma unroll
      for (int i = 0; i < N; i++) to[i * 32] = Quad{v[i][0], v[i][1], v[i][2], v[i][3]};
      continue;
    }
    const ts_i64 low = row_at(run, w, row0 + in_row), high = row_at(run, w, row0 + in_row + 8);
    if (STORE == DIRECT) {
#pragma unroll
      for (int i = 0; i < N; i++) {
        const int column = column0 + i * 8 + in_column;
        if (low >= 0) finish_and_store(run, w, v[i][0], v[i][1], row0 + in_row, column, low);
        if (high >= 0) finish_and_store(run, w, v[i][2], v[i][3], row0 + in_row + 8, column, high);
      }
      continue;
    }
    // Results change places within the warp, so that each lane stores 8 neighbours: tiles of 8 x 8 as 128 bytes each,
    // where this block's sums of these units were.
    const ts_u32 tiles = own + unit * 512;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < N; i++) {
      const int row = row0 + in_row, column = column0 + i * 8 + in_column;
      finish_units<1, false>(run, v[i], row, column, low, high, {}, 0);
      ts_put_sums<Out, TRANSPOSED>(tiles + i * 256 + (lane & 15) * 16, (const float *)v[i], false);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < (N + 1) / 2; i++) {
      const int q = i * 32 + lane, unit8 = TRANSPOSED ? q / 16 : q % N, half = TRANSPOSED ? q % 2 : q / N / 8;
      if (q >= 16 * N) break;
      const int line = (TRANSPOSED ? q / 2 : q / N) % 8;
      const int row = row0 + half * 8 + (TRANSPOSED ? 0 : line), column = column0 + unit8 * 8 + (TRANSPOSED ? line : 0);
      const ts_i64 at = row_at(run, w, row), off = column_at(run, column);
      const uint4 whole = ts_shared_load16(tiles + unit8 * 256 + half * 128 + line * 16);
      if (at >= 0 && off >= 0) *(uint4 *)(run.out + at + off) = whole;
    }
  }
}

// Adds the residual of a warp's 16 rows and 16 columns (8, if not `two`), and applies the activation.
template <bool OF_COLUMNS> TS_DEVICE void add_residual(ts_u32 from, Sum *v, bool two) {
  ts_add_stored<Out, OF_COLUMNS>(from, (float *)v, two);
  for (int i = 0; i < 8; i++)
    if (i < 4 || two) v[i] = activate(v[i]);
}

// The same where two neighbours lie at `pair`, and those of the eighth row from there 1024 bytes on: floats, or bytes.
TS_DEVICE void add_pairs(Sum *v, ts_u32 pair) {
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    float low = 0.0f, high = 0.0f;
    if (WIDE) ts_shared_load2(pair + i * 512, low, high);
    else ts_unpack(Out(), ts_shared_load_half(pair + i * 512), low, high);
    v[i] = activate(v[i] + low), v[i + 1] = activate(v[i + 1] + high);
  }
}

// A lane's words of 16 rows of 128 bytes, all under way at once: each waits some 30 cycles.
TS_DEVICE void load_words(ts_u32 from, ts_u32 (&words)[16], int lane) {
#pragma unroll
  for (int i = 0; i < 16; i++) words[i] = ts_shared_load(from + i * 128 + (((lane >> 2) ^ (i & 7)) << 4) + (lane & 3) * 4);
}

// Two neighbours of the row that begins at element `base` as bytes; those that integers sum up are finished here.
template <typename T> TS_DEVICE ts_u16 bytes_of(const Run &run, Sum a, Sum b, int row, int column, ts_i64 base) {
  if constexpr (sizeof(T) == 1) {
    Value first = a, second = b;
    if (WHOLE_SUMS) {
      const ts_i64 off = column_at(run, column);
      const bool both = EVEN || column_at(run, column + 1) >= 0;
      if (off >= 0 && base >= 0) finish(run, first, second, row, column, base + off, both);
    }
    return (ts_u16)ts_bytes(T(), first, second);
  }
  return 0;
}

// Each warp says that it has read its factors, of operands one does for the warpgroup.
TS_DEVICE void release(ts_u32 empty, int thread) {
  if ((BLOCKWISE ? thread & 31 : thread) == 0) ts_arrive(empty);
  const int column_peer = thread - 31, row_peer = thread - 63; // counted from 1
  if (CAST_M > 1 && column_peer > 0 && column_peer < CAST_M) {
    const int rank = (int)ts_cluster_rank();
    ts_peer_arrive(ts_peer_address(empty, rank / CAST_M * CAST_M + (rank + column_peer) % CAST_M));
  }
  if (CAST_N > 1 && row_peer > 0 && row_peer < CAST_N)
    ts_peer_arrive(ts_peer_address(empty, ((int)ts_cluster_rank() + row_peer * CAST_M) % CAST));
}

