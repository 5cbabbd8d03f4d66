"""Three-dimensional convolutions with few results: a block goes through slices of the input along one axis."""
