"""The bias gradient."""
