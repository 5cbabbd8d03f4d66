// The plane of inputs that a plane of results meets with one of the filter; as an unsigned number beyond all, if none.
TS_MMA_DEVICE int source_plane(int d, int filter_d) {
  if (!BACK) return d * STRIDE_D - PAD_D + filter_d * DILATION_D;
  const int at = d + PAD_D - filter_d * DILATION_D;
  return at < 0 || at % STRIDE_D ? -1 : at / STRIDE_D;
}
