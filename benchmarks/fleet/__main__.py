"""Runs this benchmark alone."""

from benchmarks.command import main
from benchmarks.fleet import benchmark

main(benchmark)
