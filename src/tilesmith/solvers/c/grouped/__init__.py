"""Grouped and depthwise convolution, and its data gradient."""
