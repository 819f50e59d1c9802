"""The dashboard in a real Chromium.

`test_main_way.py` goes through it from the login on, against `outrider up`; it is part of `make
test`. The other files are run by `make test-dashboard`: most of them look at an account with
something on every page (`accounts.py`), whose machines are scripted.

`browser_client.py` is a browser that watches what its pages run and load.
`names.py` lists the accessible names that every release keeps, `hostile.py`
the texts with which machines and agents may attack.
"""
