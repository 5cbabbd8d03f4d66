"""The bias gradient: sums over everything but channels."""
