"""Our kernels beside those of other libraries: the same problem, interleaved, numbers of both sides checked."""
