"""Vendor libraries as candidates."""
