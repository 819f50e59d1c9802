"""How this Outrider was installed, and the commands that upgrade it."""

import importlib.util
import shlex
import sys
from enum import StrEnum
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from outrider.cli.upgrade.package_index import PACKAGE, without_password

_IMAGE_MARK: Final = "container-image"
"""An empty file in the environment of `deploy/Dockerfile`."""

_SERVICE_MODULE: Final = "sqlalchemy"
"""What an installation of the machine agent alone does not have."""


class Installer(StrEnum):
    """What installed it."""

    CHECKOUT = "checkout"
    """`make up`, or `pip install --editable .`"""
    CONTAINER = "container"
    PIPX = "pipx"
    UV_TOOL = "uv tool"
    UVX = "uvx"
    UV_PIP = "uv pip"
    PIP = "pip"
    OTHER = "other"


class Installation(NamedTuple):
    """An installed Outrider.

    Attributes:
        folder: the checkout that it was installed from; None if it was a package.
        python: its interpreter.
        is_agent_only: whether only what the machine agent needs is installed.
    """

    installer: Installer
    python: str = sys.executable
    folder: Path | None = None
    is_agent_only: bool = False


def find(
    prefix: Path = Path(sys.prefix),
    found: Distribution | None = None,
    python: str = sys.executable,
    has_service: bool = importlib.util.find_spec(_SERVICE_MODULE) is not None,
) -> Installation:
    """Return how this Outrider was installed.

    Args:
        prefix: the environment of Python.
        found: the metadata of the package; by default those of this environment.
    """
    if found is None:
        try:
            found = distribution(PACKAGE)
        except PackageNotFoundError:  # run from its sources, with PYTHONPATH
            return Installation(Installer.OTHER, python)
    origin = _origin(found)
    folder = _folder(origin)
    is_editable = bool(origin.get("dir_info", {}).get("editable"))
    return Installation(
        _installer(prefix, found, is_editable=is_editable),
        python,
        folder=folder,
        is_agent_only=not has_service,
    )


def _installer(prefix: Path, found: Distribution, *, is_editable: bool) -> Installer:
    if is_editable:
        return Installer.CHECKOUT
    if (prefix / _IMAGE_MARK).exists():
        return Installer.CONTAINER
    if (prefix / "uv-receipt.toml").exists():
        return Installer.UV_TOOL
    if (prefix / "pipx_metadata.json").exists():
        return Installer.PIPX
    name = (found.read_text("INSTALLER") or "").strip()
    # uvx makes its environments inside the cache of uv, whose parts have such names.
    cached = ("archive-v", "environments-v")
    if name == "uv" and any(part.startswith(cached) for part in prefix.parts):
        return Installer.UVX
    return {"uv": Installer.UV_PIP, "pip": Installer.PIP}.get(name, Installer.OTHER)


def _origin(found: Distribution) -> dict[str, Any]:
    """Return `direct_url.json` (PEP 610); empty if the package came from an index."""
    try:
        origin = msgspec.json.decode(found.read_text("direct_url.json") or "{}")
    except (msgspec.DecodeError, UnicodeError):
        return {}
    return origin if isinstance(origin, dict) else {}


def _folder(origin: dict[str, Any]) -> Path | None:
    url = urlsplit(str(origin.get("url", "")))
    is_folder = isinstance(origin.get("dir_info"), dict) and url.scheme == "file"
    return Path(unquote(url.path)) if is_folder else None


def upgrade_commands(
    found: Installation, *, version: str = "VERSION", index: str | None = None
) -> list[str]:
    """Return the commands of a shell that upgrade an installation; none if that is not known.

    Without an index they install the release's file: anybody may have registered the name in an
    index of which its user has not said that it has Outrider.

    Args:
        version: the release to upgrade to.
        index: the package index that has Outrider.
    """
    python, address = shlex.quote(found.python), shlex.quote(without_password(index or ""))
    pip_index = f" --index-url {address}" if index else ""
    uv_index = f" --default-index {address}" if index else ""
    if found.installer is Installer.CONTAINER:
        return ["git pull", "docker build -f deploy/Dockerfile -t outrider ."]
    if found.folder is not None:
        folder = shlex.quote(str(found.folder))
        install = {
            Installer.CHECKOUT: f"make -C {folder} up",
            Installer.PIPX: f"pipx install --force {folder}",
            Installer.UV_TOOL: f"uv tool install --force {folder}",
            Installer.UVX: f"uvx --from {folder} --refresh outrider up",
            Installer.UV_PIP: f"uv pip install --python {python} {folder}",
        }
        with_pip = f"{python} -m pip install --constraint {folder}/constraints.txt {folder}"
        return [f"git -C {folder} pull", install.get(found.installer, with_pip)]
    package = f"outrider=={version}" if index else f"./outrider-{version}-py3-none-any.whl"
    if found.is_agent_only:
        package = f"--no-deps --requirement outrider-{version}-agent.txt {package}"
    command = {
        Installer.PIPX: f"pipx install --force{pip_index} {package}",
        Installer.UV_TOOL: f"uv tool install --force{uv_index} {package}",
        Installer.UVX: f"uvx{uv_index} --from {package} outrider up",
        Installer.UV_PIP: f"uv pip install --python {python}{uv_index} {package}",
        Installer.PIP: f"{python} -m pip install{pip_index} {package}",
    }
    return [command[found.installer]] if found.installer in command else []
