"""The plan, and its serialised form."""
