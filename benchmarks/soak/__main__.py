"""Runs this benchmark alone."""

from benchmarks.command import main
from benchmarks.soak import benchmark

main({"soak": benchmark})
