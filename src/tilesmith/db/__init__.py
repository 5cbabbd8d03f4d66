"""The find-db and the perf-db."""
