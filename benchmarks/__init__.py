"""Measurements of Outrider against its targets: `make bench`, or `python -m benchmarks`.

A benchmark is one module that can be run alone (`python -m benchmarks.roundtrip`). They share

    processes          starts, measures and ends the programs of a benchmark
    service            the real service, and a receiver of webhooks
    machine_agent      the real machine agent, driven over the API
    scripted_machine   a machine that answers at once, as the tests' one does
    simulator          thousands of machines in one process
    programs           what else is started: bare baselines, attacks, a receiver of webhooks
    clients            HTTP clients for mixed or scheduled requests
    sides, wrk         two servers side by side, and the load on them
    report, command    figures and their targets; the command line
"""
