"""Accuracy and time."""
