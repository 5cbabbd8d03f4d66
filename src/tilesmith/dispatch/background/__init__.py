"""Processes beside the program: one measures for mode ``background``, several decide and build kernels ahead."""
