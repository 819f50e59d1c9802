"""Runs this benchmark alone."""

from benchmarks import ides
from benchmarks.command import main

main(ides.benchmark)
