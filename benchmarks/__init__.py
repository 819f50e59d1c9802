"""Measurements of Outrider against its targets: `make bench`, or `python -m benchmarks`.

A benchmark is a generator of sections (tables of figures) under its name, listed in `__main__`.
It gets a `Bench`, whose stage starts its programs and ends them with it. Beside the tests' rig
(`tests/rig`, `tests/servers`, the kinds of agents), benchmarks share

    bench, report      rounds in turns and progress; figures, their measures, targets and tables
    processes          the programs of a benchmark
    service            the real service with accounts and keys, and a receiver of webhooks
    machine_agent      the real machine agent, driven over the API
    scripted_machine   a machine that answers at once; `simulator` has thousands in one process
    load               wrk, which repeats one request
    programs           what else is started: bare baselines, a receiver of webhooks
"""
