"""Dense problems on every arch since sm_80."""
