"""GEMMs and 1x1 convolutions with few channels on both sides."""
