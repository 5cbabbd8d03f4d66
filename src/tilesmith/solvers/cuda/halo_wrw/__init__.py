"""Weight gradients of sm_90a that copy each window of pixels once for a plane of taps."""
