"""Kernel families in CUDA C++."""
