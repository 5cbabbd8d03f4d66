"""Keeps measurements: the find-db (problem -> solvers by time) and the perf-db (problem, solver -> configs)."""
