"""CUDA text that several kernel families share."""
