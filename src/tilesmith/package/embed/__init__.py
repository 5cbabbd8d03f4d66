"""The C library generator: kernels, plans and database rows of chosen problems as a project for CMake and make."""
