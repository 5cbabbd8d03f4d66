"""What is launched."""
