"""The framework of the API: from a connection to an endpoint's handler, and back.

    http_protocol, websocket ─▶ responses (request id, metrics) ─▶ base_path, hosts ─▶ Starlette
        ─▶ pipeline: authorization, request_body, the handler, audit
        ─▶ JSON, or chunks (`streaming`), or a WebSocket (`sockets`), or a wait (`long_polls`)

`endpoint` defines a row of the table of endpoints (`service.endpoints`), from which routes, checks
and the API's description (`openapi`, `schemas`, `examples`, `docs`) are derived. `dashboard` serves
the files that `web/` builds.
"""
