"""First layers: convolutions of few input channels on tensor cores."""
