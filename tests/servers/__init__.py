"""The private servers that tests and benchmarks run on."""
