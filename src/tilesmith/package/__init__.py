"""Kernel packages: plans, binaries and database rows in one file that is read where it lies."""
