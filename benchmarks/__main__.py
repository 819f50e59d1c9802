"""Runs every benchmark, one after the other."""

from benchmarks import access, acp, agents, fleet, hostile, ides, roundtrip, webhooks
from benchmarks.command import main

main(
    roundtrip.benchmark,
    access.benchmark,
    webhooks.benchmark,
    fleet.benchmark,
    fleet.several_nodes,
    acp.benchmark,
    agents.benchmark,
    ides.benchmark,
    hostile.benchmark,
)
