"""CUTLASS as a rival: its library's kernels for a GEMM, compiled here, called in the process that measures."""
