"""Mode ``background``: a process measures, one problem after another, while calls run on what is there."""
