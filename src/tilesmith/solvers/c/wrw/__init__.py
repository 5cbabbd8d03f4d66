"""Weight gradients of dense convolutions and wide groups."""
