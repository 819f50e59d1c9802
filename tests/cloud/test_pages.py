"""The pages: the start, and letting a machine in."""

import base64
import hashlib
import re

import pytest

from tests.service.site import Site

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("path", ["/", "/device", "/device?code=BCDF-GHJK"])
async def test_a_page_loads_nothing_but_what_it_brings(site: Site, path: str) -> None:
    response = await site.client().get(path)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/html")
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    for text in re.findall(r"<(?:script|style)>(.*?)</", response.text, re.DOTALL):
        allowed = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{allowed}'" in policy


async def test_the_code_of_the_address_is_not_written_into_the_page(site: Site) -> None:
    response = await site.client().get("/device?code=<script>alert(1)</script>")
    assert "alert" not in response.text
