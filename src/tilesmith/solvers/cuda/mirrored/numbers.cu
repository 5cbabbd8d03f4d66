// Where an operand holds an Inf or a NaN, the mirrored problem multiplies it with zeros that the problem's own sums do not
// have (zeros around dy), and leaves out others (those around x). So results that such an element can have reached are
// computed again, by the definition. A block looks at what it can reach: in backward data at a channel's part of the filter,
// in backward weights at a pair of channels' taps, of which at least one is no number then.
constexpr int THREADS = 256, TAPS = R * S * DEPTH;

// `v - v` is 0 for numbers.
TS_MMA_DEVICE bool is_number(float v) { return v - v == 0.0f; }

// A tap of the filter by its number.
struct Tap {
  int d, r, s;
};
TS_MMA_DEVICE Tap tap_of(int t) { return {t / (R * S), t / S % R, t % S}; }
