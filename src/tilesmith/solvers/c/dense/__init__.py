"""Convolution forward, backward data and GEMM from one template of register tiles."""
