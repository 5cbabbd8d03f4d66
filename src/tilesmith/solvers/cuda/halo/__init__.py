"""Convolutions of sm_90a that copy each window of pixels once for all taps."""
