template <int BYTES> struct Word;
template <> struct Word<2> {
  typedef u16 type;
};
template <> struct Word<4> {
  typedef u32 type;
};
template <> struct Word<8> {
  typedef uint2 type;
};
template <> struct Word<16> {
  typedef uint4 type;
};
constexpr int ELEMENT = sizeof(Element);

// VEC neighbouring channels; what does not exist is zero.
struct Vector {
  typename Word<VEC * ELEMENT>::type bits;
  TS_MMA_DEVICE Vector load(const Element *from, bool exists) {
    Vector v = {};
    if (exists) v.bits = *(const typename Word<VEC * ELEMENT>::type *)from;
    return v;
  }
  __device__ __forceinline__ float operator[](int i) const { return widened(((const Element *)&bits)[i]); }
};
