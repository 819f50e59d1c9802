"""The dashboard's files: the pages, the assets, and a service without them."""

import gzip
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import HTMLResponse

from outrider.service.http import dashboard
from outrider.service.http.base_path import BasePath

_SCRIPT = b"console.log('hello')\n"


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A directory as `web/` builds it."""
    assets = tmp_path / "static" / "assets"
    assets.mkdir(parents=True)
    page = '<!doctype html><base href="/" /><title>Outrider</title>'
    (tmp_path / "static" / "index.html").write_text(page)
    (tmp_path / "static" / "icon.svg").write_text("<svg/>")
    (tmp_path / "secret.txt").write_text("secret")
    (assets / "index-1a2b.js").write_bytes(_SCRIPT)
    (assets / "index-1a2b.js.gz").write_bytes(gzip.compress(_SCRIPT))
    (assets / "session-3c4d.js").write_bytes(_SCRIPT)
    return tmp_path / "static"


@pytest.fixture
async def client(built: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the dashboard alone."""
    app = Starlette(routes=[*dashboard.routes(HTMLResponse("missing"), built)])
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://outrider") as client:
        yield client


@pytest.mark.parametrize("path", dashboard.PATHS)
async def test_every_path_gets_the_page_with_a_strict_policy(
    client: httpx.AsyncClient, path: str
) -> None:
    ids = {"daemonId": "machine_1", "targetId": "m:session:s", "webhookId": "webhook_1"}
    response = await client.get(path.format_map(ids))
    assert response.status_code == 200
    assert '<base href="/" /><title>Outrider</title>' in response.text
    assert response.headers["cache-control"] == "no-store"
    policy = dict(part.split(" ", 1) for part in dashboard.POLICY.split("; "))
    assert response.headers["content-security-policy"] == dashboard.POLICY
    assert policy["script-src"] == policy["worker-src"] == policy["default-src"] == "'self'"
    assert policy["object-src"] == policy["frame-ancestors"] == "'none'"


@pytest.mark.parametrize(("accepted", "encoding"), [("gzip, br", "gzip"), ("identity", None)])
async def test_an_asset_is_cached_for_ever(
    client: httpx.AsyncClient, accepted: str, encoding: str | None
) -> None:
    headers = {"Accept-Encoding": accepted}
    response = await client.get("/assets/index-1a2b.js", headers=headers)
    assert response.content == _SCRIPT
    assert response.headers.get("content-encoding") == encoding
    assert "immutable" in response.headers["cache-control"]
    assert response.headers["content-type"].startswith("text/javascript")
    assert response.headers["vary"] == "Accept-Encoding"


@pytest.mark.parametrize(
    "name", ["no.js", "..%2F..%2Fsecret.txt", "..%2Findex.html", "index-1a2b.js.gz", ""]
)
async def test_only_what_was_built_is_served(client: httpx.AsyncClient, name: str) -> None:
    assert (await client.get(f"/assets/{name}")).status_code == 404


async def test_a_page_takes_no_other_method(client: httpx.AsyncClient) -> None:
    assert (await client.post("/login", json={})).status_code == 405


async def test_without_the_files_each_page_says_so(tmp_path: Path) -> None:
    app = Starlette(routes=[*dashboard.routes(HTMLResponse("not built"), tmp_path)])
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://outrider") as client:
        for path in ("/", "/inbox", "/sessions/x"):
            assert (await client.get(path)).text == "not built"
        assert (await client.get("/assets/index-1a2b.js")).status_code == 404
        assert (
            await client.get("/device")
        ).status_code == 404  # `pages` has one that needs no files


@pytest.mark.parametrize("path", ["/outrider", "/outrider/", "/outrider/machines/machine_1"])
async def test_the_page_names_its_base_path(built: Path, path: str) -> None:
    app = BasePath(
        Starlette(routes=[*dashboard.routes(HTMLResponse("missing"), built)]), "/outrider"
    )
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://outrider") as client:
        response = await client.get(path)
        assert '<base href="/outrider/" />' in response.text
        assert response.headers["content-security-policy"] == dashboard.POLICY
        session = await client.get("/outrider/sessions/m:session:s")
        code = "</outrider/assets/session-3c4d.js>; rel=modulepreload"
        assert (response.headers.get("link"), session.headers["link"]) == (None, code)
        script = await client.get("/outrider/assets/index-1a2b.js")
        assert script.content == _SCRIPT
        assert (await client.get("/machines")).status_code == 404


async def test_an_asset_that_a_new_build_has_removed_is_missing(
    client: httpx.AsyncClient, built: Path
) -> None:
    for file in (built / "assets").iterdir():
        file.unlink()
    assert (await client.get("/assets/index-1a2b.js")).status_code == 404
    (built / "icon.svg").unlink()
    assert (await client.get("/icon.svg")).text == "<svg/>"


@pytest.mark.parametrize("is_built", [True, False])
async def test_a_browser_gets_a_page_at_an_unknown_path(built: Path, is_built: bool) -> None:
    directory = built if is_built else built / "assets"
    missing = HTMLResponse("There is no such page", 404)
    app = BasePath(Starlette(routes=[dashboard.not_found(missing, directory)]), "/outrider")
    transport = httpx.ASGITransport(app)
    headers = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    async with httpx.AsyncClient(transport=transport, base_url="http://outrider") as client:
        response = await client.get("/outrider/no/such/page", headers=headers)
        assert response.status_code == 404
        page = '<base href="/outrider/" />' if is_built else "There is no such page"
        assert page in response.text
        posted = await client.post("/outrider/no/such/page", headers=headers)
        assert posted.status_code == 404
        assert page not in posted.text
        assert page not in (await client.get("/outrider/api", headers=headers)).text
