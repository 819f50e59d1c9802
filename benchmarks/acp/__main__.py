"""Runs this benchmark alone."""

from benchmarks.acp import benchmark
from benchmarks.command import main

main({"acp": benchmark})
