"""Kernel families in C."""
