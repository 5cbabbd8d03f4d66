"""GEMMs and convolutions of sm_90a by wgmma: operands are read by the bulk tensor copy engine."""
