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


_MARKS: Final = {
    "container-image": Installer.CONTAINER,  # an empty file that `deploy/Dockerfile` makes
    "uv-receipt.toml": Installer.UV_TOOL,
    "pipx_metadata.json": Installer.PIPX,
}
"""Files in the environment of Python that say what made it."""


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

    @property
    def described(self) -> str:
        """How it was installed, in words."""
        what = "the machine agent alone, " if self.is_agent_only else ""
        match self.installer:
            case Installer.CONTAINER:
                return f"{what}in a container image"
            case Installer.OTHER:
                return f"{what}installed in a way that is not known"
            case Installer.CHECKOUT:
                return f"{what}run from the checkout {self.folder}"
        origin = f" from {self.folder}" if self.folder is not None else ""
        return f"{what}installed with {self.installer}{origin}"


def find(prefix: Path = Path(sys.prefix), package: Distribution | None = None) -> Installation:
    """Return how this Outrider was installed.

    Args:
        prefix: the environment of Python.
        package: the metadata of the package; by default those of this environment.
    """
    try:
        package = package or distribution(PACKAGE)
    except PackageNotFoundError:  # run from its sources, with PYTHONPATH
        return Installation(Installer.OTHER)
    try:  # direct_url.json (PEP 610) is absent if the package came from an index
        origin = msgspec.json.decode(package.read_text("direct_url.json") or "{}", type=_Origin)
    except (msgspec.DecodeError, UnicodeError):
        origin = _Origin()
    url = urlsplit(origin.url)
    is_folder = origin.dir_info is not None and url.scheme == "file"
    return Installation(
        _installer(prefix, package, origin),
        folder=Path(unquote(url.path)) if is_folder else None,
        is_agent_only=importlib.util.find_spec(_SERVICE_MODULE) is None,
    )


class _Origin(msgspec.Struct):
    url: str = ""
    dir_info: dict[str, Any] | None = None


def _installer(prefix: Path, package: Distribution, origin: _Origin) -> Installer:
    if origin.dir_info and origin.dir_info.get("editable"):
        return Installer.CHECKOUT
    for mark, installer in _MARKS.items():
        if (prefix / mark).exists():
            return installer
    name = (package.read_text("INSTALLER") or "").strip()
    # uvx makes its environments inside the cache of uv, whose parts have such names.
    cached = ("archive-v", "environments-v")
    if name == "uv" and any(part.startswith(cached) for part in prefix.parts):
        return Installer.UVX
    return {"uv": Installer.UV_PIP, "pip": Installer.PIP}.get(name, Installer.OTHER)


def upgrade_commands(
    here: Installation, *, version: str = "VERSION", index: str | None = None
) -> list[str]:
    """Return the commands of a shell that upgrade an installation; none if that is not known.

    Without an index they install the release's file: anybody may have registered the name in an
    index of which its user has not said that it has Outrider.

    Args:
        version: the release to upgrade to.
        index: the package index that has Outrider.
    """
    python, address = shlex.quote(here.python), shlex.quote(without_password(index or ""))
    pip_index = f" --index-url {address}" if index else ""
    uv_index = f" --default-index {address}" if index else ""
    if here.installer is Installer.CONTAINER:
        return ["git pull", "docker build -f deploy/Dockerfile -t outrider ."]
    if here.folder is not None:
        folder = shlex.quote(str(here.folder))
        install = {
            Installer.CHECKOUT: f"make -C {folder} up",
            Installer.PIPX: f"pipx install --force {folder}",
            Installer.UV_TOOL: f"uv tool install --force {folder}",
            Installer.UVX: f"uvx --from {folder} --refresh outrider up",
            Installer.UV_PIP: f"uv pip install --python {python} {folder}",
        }
        with_pip = f"{python} -m pip install --constraint {folder}/constraints.txt {folder}"
        return [f"git -C {folder} pull", install.get(here.installer, with_pip)]
    package = f"outrider=={version}" if index else f"./outrider-{version}-py3-none-any.whl"
    if here.is_agent_only:
        package = f"--no-deps --requirement outrider-{version}-agent.txt {package}"
    command = {
        Installer.PIPX: f"pipx install --force{pip_index} {package}",
        Installer.UV_TOOL: f"uv tool install --force{uv_index} {package}",
        Installer.UVX: f"uvx{uv_index} --from {package} outrider up",
        Installer.UV_PIP: f"uv pip install --python {python}{uv_index} {package}",
        Installer.PIP: f"{python} -m pip install{pip_index} {package}",
    }
    return [command[here.installer]] if here.installer in command else []
