"""Chooses the kernel for a problem, makes its plan, and returns it as a callable."""
