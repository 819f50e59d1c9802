"""Measurements of Outrider against its targets: `make bench`, or `python -m benchmarks`.

A benchmark is one module, which can be run alone (`python -m benchmarks roundtrip`). They share the
tests' rig (`tests/rig`, `tests/servers`, the kinds of agents), and

    command, report    the command line; figures, their targets and tables
    processes          starts, measures and ends the programs of a benchmark
    service            the real service with accounts and keys, and a receiver of webhooks
    machine_agent      the real machine agent, driven over the API
    scripted_machine   a machine that answers at once; `simulator` has thousands in one process
    programs           what else is started: bare baselines, attacks, a receiver of webhooks
    clients, wrk       mixed or scheduled requests; one request as often as possible
    sides              two servers side by side
"""
