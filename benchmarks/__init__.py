"""Measurements of Outrider against its targets: `make bench`, or `python -m benchmarks`.

Each benchmark is a package that can be run alone (`python -m benchmarks.roundtrip`). They
share how programs are started and ended (`processes`), the real service (`service`), the
machine that answers by a script (`scripted_machine`), and how figures are told (`report`).
"""
