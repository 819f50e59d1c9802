"""Tests of the service as an MCP server."""
