"""Runs every benchmark, one after the other."""

from benchmarks import roundtrip, webhooks
from benchmarks.command import main

main(roundtrip.benchmark, webhooks.benchmark)
