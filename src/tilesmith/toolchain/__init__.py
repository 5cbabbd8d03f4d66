"""Compilers and the artifact cache."""
