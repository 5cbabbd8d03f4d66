"""PyTorch programs: which problems they meet."""
