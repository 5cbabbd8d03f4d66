"""Search: what to try next, measured in a process that may die, kept in the database."""
