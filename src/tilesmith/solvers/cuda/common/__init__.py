"""What several families in CUDA C++ share."""
