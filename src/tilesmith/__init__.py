"""Tilesmith finds, remembers and ships the fastest kernel for every convolution, transposed convolution and GEMM."""

__version__ = "0.1.0"
