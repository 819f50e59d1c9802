"""Runs this benchmark alone."""

from benchmarks.command import main
from benchmarks.fleet import benchmark, several_nodes

main(benchmark, several_nodes)
