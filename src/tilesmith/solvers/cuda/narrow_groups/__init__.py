"""Convolutions of many narrow groups by mma.sync: a tile holds the channels of several groups."""
