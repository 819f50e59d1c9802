"""Runs these benchmarks alone."""

from benchmarks.command import main
from benchmarks.fleet import benchmark, several_nodes

main({"fleet": benchmark, "nodes": several_nodes})
