"""Strided convolutions of odd channels on tensor cores: rows are read and written as they lie."""
