"""Depthwise convolutions of channels-first tensors."""
