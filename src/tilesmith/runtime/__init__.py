"""The C runtime and its Python binding."""
