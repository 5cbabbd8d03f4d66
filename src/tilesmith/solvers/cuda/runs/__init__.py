"""Strided convolutions of any channels whose rows are read as they lie, forward and backward weights."""
