"""Runs this benchmark alone."""

from benchmarks.agents import benchmark
from benchmarks.command import main

main({"agents": benchmark})
