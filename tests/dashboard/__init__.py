"""The dashboard in a real Chromium.

`test_main_way.py` goes through it from the login on, against `outrider up`. `visitor.py` is
somebody with a browser: it watches that no page runs what it should not run, or loads from
elsewhere.
"""
