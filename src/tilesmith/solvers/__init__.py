"""Which kernels exist for a problem."""
