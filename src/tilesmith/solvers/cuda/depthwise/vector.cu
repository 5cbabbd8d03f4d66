// NOTE: as elements, 16-bit ones would take a register each (ptxas 13.0): whole words are held, and taken apart late.
template <int BYTES> struct Word {
  typedef Pack<u32, BYTES / 4> type;
};
template <> struct Word<2> {
  typedef u16 type;
};
template <> struct Word<4> {
  typedef u32 type;
};

// N neighbouring channels; what does not exist is zero.
template <int N> struct Channels {
  typename Word<N * sizeof(Element)>::type bits;
  TS_MMA_DEVICE Channels load(const Element *from, bool exists) {
    Channels v = {};
    if (exists) v.bits = *(const typename Word<N * sizeof(Element)>::type *)from;
    return v;
  }
  TS_MMA_METHOD float operator[](int i) const {
    if constexpr (N > 1 && sizeof(Element) == 2)
      return half_of(Element(), ((const u32 *)&bits)[i / 2], i % 2);
    else
      return widened(((const Element *)&bits)[i]);
  }
};
// Of a thread's VEC results, and of the channels that they are sums of: with a multiplier several results have the same.
typedef Channels<VEC> Vector;
typedef Channels<INPUTS> Inputs;
TS_MMA_CONSTANT int input_of(int result) { return result * INPUTS / VEC; }

// An address of global memory of which the compiler knows nothing else: it would take sums of addresses apart, and add
// up each anew.
template <typename T> TS_MMA_DEVICE T *opaque(T *address) {
  u64 place = __cvta_generic_to_global(address);
  asm("" : "+l"(place));
  return (T *)__cvta_global_to_generic(place);
}
