"""Weight gradients of depthwise convolutions and narrow groups."""
