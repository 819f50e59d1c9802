"""Runs this benchmark alone."""

from benchmarks import agents
from benchmarks.command import main

main(agents.benchmark)
