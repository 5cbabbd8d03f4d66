"""Selections: which problems and kernels go into a package or a C library."""
