"""C text that every CPU kernel shares: vectors, conversions, epilogues."""
