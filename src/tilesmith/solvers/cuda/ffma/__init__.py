"""Exact fp32 matrix products, without tensor cores, on every arch since sm_80."""
