"""The service as a server of the Model Context Protocol (MCP): tools for agents.

    POST /mcp ──▶ http_endpoint.py ──▶ sdk_server.py ──▶ tool_calls.py ──▶ the endpoint table
                  key, limits, size    the official SDK  tools.py          (service.http)

A tool is a request of the API: the row of its endpoint decides about scope, limits, audit and
result, so no rule is written twice. Every message is a request of its own, without a session, so
any node answers. Only `sdk_server.py` imports the SDK, at the first request: most services
never need it.
"""
