"""What was measured, kept: the find-db (problem -> solvers by time) and the perf-db (problem, solver -> configs)."""
