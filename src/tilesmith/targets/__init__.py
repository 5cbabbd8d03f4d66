"""Facts about machines."""
