"""Depthwise convolution of int8 tensors by dp4a."""
