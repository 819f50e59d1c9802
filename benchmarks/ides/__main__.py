"""Runs this benchmark alone."""

from benchmarks.command import main
from benchmarks.ides import benchmark

main({"ides": benchmark})
