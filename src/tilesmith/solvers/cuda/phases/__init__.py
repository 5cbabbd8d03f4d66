"""Transposed convolutions, strided backward data and few results: phases or taps as columns of one product."""
