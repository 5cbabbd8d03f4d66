"""The tuning spec: a user's own choices."""
