"""Template and values to source text."""
