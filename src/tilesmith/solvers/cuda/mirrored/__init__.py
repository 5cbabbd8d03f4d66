"""Last layers by the kernels of first layers: the mirrored problem."""
