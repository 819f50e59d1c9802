"""Runs this benchmark alone."""

from benchmarks.access import benchmark
from benchmarks.command import main

main({"access": benchmark})
