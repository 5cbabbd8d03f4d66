constexpr int PIECES = BLOCK_C / 8, TAPS = ROWS_ON_N ? TAPS_W : TAPS_ON_N ? 1 : TAPS_D * TAPS_H * TAPS_W;
constexpr int STEPS = (TAPS * PIECES + 1) / 2; // of 16 products, in two halves

// The tap and the piece of channels that half a step multiplies; none where there is no such tap.
struct Piece {
  int tap, piece;
};
TS_MMA_CONSTANT Piece piece_at(int step, int half) {
  const int pairs = PIECES / 2; // of pieces of a tap, in steps of a warpgroup; then the last pieces of two taps
  if (WGMMA && PIECES % 2 && step < TAPS * pairs) return {step / pairs, step % pairs * 2 + half};
  if (WGMMA && PIECES % 2) return {(step - TAPS * pairs) * 2 + half, PIECES - 1};
  return {(2 * step + half) / PIECES, (2 * step + half) % PIECES};
}
