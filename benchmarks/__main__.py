"""Runs every benchmark, one after the other."""

from benchmarks import roundtrip
from benchmarks.command import main

main(roundtrip.benchmark)
