"""A page of another site whose host name resolves to the loopback address of a service."""

import pytest

from tests.rig.errors import assert_error
from tests.security.target import Target


@pytest.mark.parametrize(
    "path", ["/", "/login", "/docs", "/openapi.json", "/api/v1/daemons", "/mcp", "/metrics"]
)
async def test_it_reads_nothing(target: Target, path: str) -> None:
    client = target.site.client()
    assert_error(await client.get(path, headers={"Host": "evil.example"}), 421)
    assert (await client.get("/healthz", headers={"Host": "evil.example"})).json() == {
        "status": "ok"
    }
