"""Weight gradients of bf16 by instructions that multiply matrix tiles (AMX)."""
