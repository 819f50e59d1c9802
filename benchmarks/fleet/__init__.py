"""`fleet`: what thousands of machines cost one node, and what several nodes do with them."""

from benchmarks.fleet import measure, nodes

benchmark = measure.benchmark
several_nodes = nodes.benchmark

__all__ = ["benchmark", "several_nodes"]
