"""The shape of errors (docs/api.md, "Errors")."""

from typing import Any

import httpx


def assert_error(response: httpx.Response, status: int, code: str | None = None) -> dict[str, Any]:
    """Check a response against the shape of errors; return its body."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    body: dict[str, Any] = response.json()
    assert isinstance(body["error"], str)
    assert len(body["error"]) > 10
    assert body.get("code") == code
    assert ("code" in body) == (code is not None)
    assert ("details" in body) == (status == 400)
    for detail in body.get("details", []):
        assert detail.keys() == {"path", "message"}
    return body


def paths(response: httpx.Response) -> list[str]:
    """Return the paths that a 400 blames."""
    return [detail["path"] for detail in assert_error(response, 400)["details"]]
