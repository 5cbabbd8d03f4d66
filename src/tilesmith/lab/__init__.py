"""The GEMM laboratory: sizes are tuned, measured beside rivals, and kept side by side."""
