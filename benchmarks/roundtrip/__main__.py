"""Runs this benchmark alone."""

from benchmarks.command import main
from benchmarks.roundtrip import benchmark

main({"roundtrip": benchmark})
