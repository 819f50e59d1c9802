"""The newest release of a package index."""

import json
import socket
from base64 import b64encode

import pytest

from outrider.cli.upgrade.package_index import PackageIndexError, newest_release
from tests.cli.upgrade.conftest import Index


def newest(index: Index, **options: bool) -> str:
    return str(newest_release(index.url, python="3.11.7", **options))


def test_the_newest_release_is_read_from_json(index: Index) -> None:
    index.has(
        "outrider-0.9.0.tar.gz",
        "outrider-0.10.0-py3-none-any.whl",
        "outrider-0.11.0rc1-py3-none-any.whl",
        "outrider_agent-7.0-py3-none-any.whl",
        "outrider-8.exe",
    )
    assert newest(index) == "0.10.0"
    assert newest(index, prereleases=True) == "0.11.0rc1"
    (path, headers), _ = index.requested
    assert path == "/simple/outrider/"
    assert headers["Accept"].startswith("application/vnd.pypi.simple.v1+json,")


def test_the_newest_release_is_read_from_html(index: Index) -> None:
    index.kind = "text/html; charset=utf-8"
    index.page = b"""<!DOCTYPE html><html><body>
        <a href="../../files/outrider-1.0.0-py3-none-any.whl#sha256=00">outrider-1.0.0</a><br>
        <a href="/files/outrider-1.2.0.tar.gz" data-requires-python="&gt;=3.11">x</a>
        <a href="/files/outrider-1.3.0.tar.gz" data-requires-python="&gt;=3.14">x</a>
        <a href="/files/outrider-1.4.0.tar.gz" data-yanked="">x</a>
        <a href="//[/outrider-1.5.0.tar.gz">no address</a> <a>no link</a>
        </body></html>"""
    assert newest(index) == "1.2.0"


def test_what_pip_would_not_install_does_not_count(index: Index) -> None:
    files = [
        {"filename": "outrider-1.0.tar.gz", "requires-python": "no specifier", "yanked": False},
        {"filename": "outrider-2.0.tar.gz", "yanked": "it loses data"},
        {"filename": "outrider-3.0.tar.gz", "yanked": True},
        {"filename": "outrider-4.0.tar.gz", "requires-python": ">=3.14", "yanked": False},
    ]
    index.page = json.dumps({"files": files}).encode()
    assert newest(index) == "1.0"


def test_a_prerelease_counts_if_there_is_nothing_else(index: Index) -> None:
    index.releases("1.0a1", "1.0b1")
    assert newest(index) == "1.0b1"


def test_the_password_reaches_the_index_only(index: Index) -> None:
    index.releases("1.0")
    address = index.url.replace("//", "//me:hush@")
    assert str(newest_release(address)) == "1.0"
    _, headers = index.requested[0]
    assert headers["Authorization"] == f"Basic {b64encode(b'me:hush').decode()}"
    index.status = 500
    with pytest.raises(PackageIndexError, match="status 500") as failure:
        newest_release(address)
    assert "hush" not in str(failure.value)


def test_an_answer_without_releases_is_an_error(index: Index) -> None:
    with pytest.raises(PackageIndexError, match="has no release of outrider"):
        newest(index)
    index.page = b"[1"
    with pytest.raises(PackageIndexError, match="cannot be read"):
        newest(index)
    index.status = 404
    with pytest.raises(PackageIndexError, match="has no package outrider"):
        newest(index)


def test_an_index_that_cannot_be_reached() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(PackageIndexError, match=r"cannot be read: .*refused"):
            newest_release(url)
    for wrong in ("ftp://example.org", "nonsense", "http://[", ""):
        with pytest.raises(PackageIndexError, match="cannot be read"):
            newest_release(wrong)


def test_an_endless_answer_is_cut_off(index: Index) -> None:
    index.is_endless = True
    with pytest.raises(PackageIndexError, match=r"no answer within 0\.3 s"):
        newest_release(index.url, seconds=0.3)
