"""Code that several families in CUDA C++ share."""
