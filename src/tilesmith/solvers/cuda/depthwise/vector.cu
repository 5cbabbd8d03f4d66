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

// VEC neighbouring channels; what does not exist is zero.
struct Vector {
  typename Word<VEC * sizeof(Element)>::type bits;
  TS_MMA_DEVICE Vector load(const Element *from, bool exists) {
    Vector v = {};
    if (exists) v.bits = *(const typename Word<VEC * sizeof(Element)>::type *)from;
    return v;
  }
  TS_MMA_METHOD float operator[](int i) const { return widened(((const Element *)&bits)[i]); }
};
