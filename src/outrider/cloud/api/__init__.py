"""The REST API: one module per resource, each with its endpoints in a table.

`endpoint.py` defines an endpoint and `table.py` lists all of them. A request passes `responses.py`
(request id, metrics), `router.py` and `pipeline.py`, which runs the checks of `authorization.py`,
decodes the body with `request_body.py` and calls the handler. A handler returns JSON or, if its
endpoint has a `stream`, chunks that `streaming.py` sends while the client reads them. `openapi.py`
and `docs.py` describe the API from the same table.
"""
