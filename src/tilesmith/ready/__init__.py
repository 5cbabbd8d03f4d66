"""Lists of problems made ready for processes that follow."""
