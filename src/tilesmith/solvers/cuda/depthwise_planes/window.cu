// Inputs that VEC neighbouring results read of a row, as whole vectors: from vector FIRST on, counted from the results'.
TS_MMA_CONSTANT int floor_div(int a, int b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }
constexpr int FIRST = floor_div(-PAD_W, VEC);
constexpr int VECTORS = floor_div(VEC - 1 + (S - 1) * DILATION_W - PAD_W, VEC) - FIRST + 1, BEFORE = -PAD_W - FIRST * VEC;

TS_MMA_DEVICE float element(const Pack<Element, VEC> &from, int i) {
  if constexpr (VEC > 1 && sizeof(Element) == 2)
    return half_of(Element(), ((const u32 *)&from)[i / 2], i % 2);
  else
    return widened(from.v[i]);
}
// A row's window; what lies outside the row, or all of it if it does not exist, is zero.
struct Window {
  Pack<Element, VEC> v[VECTORS];
  TS_MMA_METHOD void load(const Element *row, int vector, int vectors, bool exists) {
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
      const bool inside = exists && (u32)(vector + FIRST + i) < (u32)vectors;
      if (inside)
        v[i] = *(const Pack<Element, VEC> *)(row + (vector + FIRST + i) * VEC);
      else
        v[i] = {};
    }
  }
  TS_MMA_METHOD float at(int column) const { return element(v[(BEFORE + column) / VEC], (BEFORE + column) % VEC); }
};
