"""Runs this benchmark alone."""

from benchmarks.command import main
from benchmarks.hostile import benchmark

main({"hostile": benchmark})
