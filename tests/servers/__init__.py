"""Private servers of the real PostgreSQL and Redis, for tests and benchmarks."""
