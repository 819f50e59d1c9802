"""The newest release in a package index: the simple API as JSON (PEP 691) or HTML (PEP 503)."""

import platform
from collections.abc import Iterator
from contextlib import suppress
from html.parser import HTMLParser
from typing import Final
from urllib.parse import unquote, urlsplit

import httpx2
import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from outrider.cli.doctor.finding import in_background
from outrider.contract.errors import OutriderError
from outrider.contract.text import printable

PACKAGE: Final = "outrider"

_SECONDS: Final = 15.0
_MAX_BODY: Final = 16 * 1024 * 1024
_JSON: Final = "application/vnd.pypi.simple.v1+json"
_ACCEPT: Final = f"{_JSON}, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"


class PackageIndexError(OutriderError):
    """The index cannot be asked, or has no release. The text says why."""


class _File(msgspec.Struct):
    """A file of a release, as in PEP 691. `yanked` may be the reason for it."""

    filename: str
    requires_python: str | None = msgspec.field(name="requires-python", default=None)
    yanked: bool | str = False


class _Project(msgspec.Struct):
    files: list[_File]


def newest_release(
    index: str,
    *,
    prereleases: bool = False,
    python: str = platform.python_version(),
    seconds: float = _SECONDS,
) -> Version:
    """Return the newest release that pip would install from an index.

    Args:
        index: the address of its simple API; a user and a password in it are sent to it.
        prereleases: whether these count; they do anyway if there is no other release.
        python: the version of Python that the release has to support.
        seconds: the limit for the whole answer.

    Raises:
        PackageIndexError: there is no answer in time, or no release in it.
    """
    shown = without_password(index)
    try:
        # In a thread, because httpx limits each step but not the whole of an endless answer.
        files = in_background(lambda: _files(index, seconds)).result(seconds)
    except TimeoutError:
        reason = f"no answer within {seconds:g} s"
        raise PackageIndexError(f"The package index {shown} cannot be read: {reason}") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
        reason = printable(str(error) or type(error).__name__)
        raise PackageIndexError(f"The package index {shown} cannot be read: {reason}") from error
    versions = {version for file in files for version in _installable(file, python)}
    candidates = {version for version in versions if prereleases or not version.is_prerelease}
    if not versions:
        raise PackageIndexError(
            f"The package index {shown} has no release of {PACKAGE} for Python {python}"
        )
    return max(candidates or versions)


def without_password(index: str) -> str:
    """Return the address of an index as it may be shown."""
    try:
        parts = urlsplit(index)
    except ValueError:
        return printable(index.rpartition("@")[2])
    return printable(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl())


def _files(index: str, seconds: float) -> list[_File]:
    """Return the files that an index lists.

    Raises:
        PackageIndexError, httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError: it does not.
    """
    shown = without_password(index)
    url = f"{index.rstrip('/')}/{PACKAGE}/"
    client = httpx2.Client(timeout=seconds, follow_redirects=True)
    with client, client.stream("GET", url, headers={"Accept": _ACCEPT}) as response:
        if response.status_code == httpx2.codes.NOT_FOUND:
            raise PackageIndexError(f"The package index {shown} has no package {PACKAGE}")
        if response.status_code != httpx2.codes.OK:
            raise ValueError(f"it answers with status {response.status_code}")
        body = bytearray()
        for part in response.iter_bytes():
            body += part
            if len(body) > _MAX_BODY:
                raise ValueError(f"it answers with more than {_MAX_BODY} bytes")
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind.endswith("json"):
        return msgspec.json.decode(body, type=_Project).files  # its errors are ValueErrors
    page = _Page()
    page.feed(body.decode("utf-8", "replace"))
    return page.files


class _Page(HTMLParser):
    """The page of a package: a link for each file."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[_File] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Add a link's file: the last part of its address is the name."""
        values = dict(attrs)
        if tag != "a" or not values.get("href"):
            return
        with suppress(ValueError):  # not an address
            path = urlsplit(values["href"] or "").path
            name = unquote(path.rpartition("/")[2])
            yanked = "data-yanked" in values
            self.files.append(_File(name, values.get("data-requires-python"), yanked))


def _installable(file: _File, python: str) -> Iterator[Version]:
    """Give the version of a file, if pip would install it."""
    if file.yanked is not False:
        return
    with suppress(InvalidSpecifier):  # pip ignores it too
        if not SpecifierSet(file.requires_python or "").contains(python, prereleases=True):
            return
    with suppress(InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        if file.filename.endswith(".whl"):
            name, version, *_ = parse_wheel_filename(file.filename)
        else:
            name, version = parse_sdist_filename(file.filename)
        if name == PACKAGE:
            yield version
