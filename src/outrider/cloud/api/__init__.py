"""The REST API: one module per resource, each with its endpoints in a table.

`endpoint.py` says what an endpoint is, `table.py` lists them all, `pipeline.py` serves
them: the checks in the contract's order, then the handler.
"""
