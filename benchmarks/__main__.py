"""Runs every benchmark, one after the other."""

from benchmarks import access, acp, agents, roundtrip, webhooks
from benchmarks.command import main

main(roundtrip.benchmark, access.benchmark, webhooks.benchmark, acp.benchmark, agents.benchmark)
