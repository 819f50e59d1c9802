"""Runs this benchmark alone."""

from benchmarks import acp
from benchmarks.command import main

main(acp.benchmark)
