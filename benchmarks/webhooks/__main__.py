"""Runs this benchmark alone."""

from benchmarks import webhooks
from benchmarks.command import main

main(webhooks.benchmark)
