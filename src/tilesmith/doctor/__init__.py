"""The health of a machine."""
