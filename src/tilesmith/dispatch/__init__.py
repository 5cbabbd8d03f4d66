"""From a problem to a plan."""
