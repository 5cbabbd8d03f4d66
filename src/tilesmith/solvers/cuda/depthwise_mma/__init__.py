"""Depthwise convolutions on tensor cores."""
