"""Convolution forward, backward data and GEMM of bf16 by instructions that multiply matrix tiles (AMX)."""
