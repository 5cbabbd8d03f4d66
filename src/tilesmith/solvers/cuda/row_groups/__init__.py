"""Products of groups of rows with matrices of their own."""
