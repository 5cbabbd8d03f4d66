"""Every test has a database of its own."""

from fresh_home import cache_dir, home

__all__ = ["cache_dir", "home"]
