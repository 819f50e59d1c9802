"""`outrider upgrade`: say whether a newer release exists, and how to install it."""

import sys
from enum import IntEnum
from typing import Final, NoReturn

import msgspec
from packaging.version import InvalidVersion, Version

from outrider import __version__
from outrider.cli.client.output import print_json, print_text
from outrider.cli.doctor.service_checks import check_service
from outrider.cli.doctor.service_facts import (
    access,
    connected_machines,
    machine_facts,
    service_facts,
)
from outrider.cli.doctor.time_limit import BackgroundWork
from outrider.cli.upgrade import installation
from outrider.cli.upgrade.installation import Installation, Installer, upgrade_commands
from outrider.cli.upgrade.package_index import PackageIndexError, newest_release, without_password
from outrider.contract.errors import OutriderError
from outrider.contract.text import escaped_lines, printable

_SERVICE_SECONDS: Final = 60.0
"""The limit for what has shorter ones of its own, such as each step of a request."""


class Answer(IntEnum):
    """The exit codes of `--check`."""

    UP_TO_DATE = 0
    NEWER = 1
    UNKNOWN = 2


class Side(msgspec.Struct, frozen=True):
    """The service, or a connected machine agent, and its version."""

    name: str
    version: str


class Report(msgspec.Struct, rename="camel"):
    """What `--check --json` prints.

    Attributes:
        newest: the newest release; None if that is not known, for the reason in `problem`.
        index: the index that was asked; None if none was named.
        upgrade: whether this command or one of the sides is older than that; None likewise.
        commands: what upgrades this installation; empty if that is not known.
        sides: the service and its machine agents; incomplete for the reason in `sides_problem`.
    """

    version: str
    newest: str | None
    upgrade: bool | None
    index: str | None
    problem: str | None
    installer: Installer
    commands: list[str]
    sides: list[Side]
    sides_problem: str | None


def show(*, index: str | None, as_json: bool) -> None:
    """Print how to upgrade this installation. No network is used."""
    found = installation.find()
    commands = upgrade_commands(found, index=index)
    if as_json:
        print_json({"version": __version__, "installer": found.installer, "commands": commands})
        return
    print_text(f"This is Outrider {__version__}, {_installed(found)}.")
    _print_commands(commands)
    print_text("`outrider upgrade --check --index URL` says whether there is a newer release.")


def check(*, index: str | None, as_json: bool) -> NoReturn:
    """Ask the package index and the service, print the result, and end with an `Answer`."""
    found = installation.find()
    asking = BackgroundWork(_sides, _SERVICE_SECONDS)
    newest, problem = _newest(index)
    try:
        sides, sides_problem = asking.result()
    except (TimeoutError, OSError, RuntimeError) as error:
        sides, sides_problem = [], str(error) or "the service does not answer in time"
    is_older = newest is not None and _is_older(__version__, newest)
    report = Report(
        version=__version__,
        newest=None if newest is None else str(newest),
        upgrade=None
        if newest is None
        else is_older or any(_is_older(side.version, newest) for side in sides),
        index=None if index is None else without_password(index),
        problem=problem,
        installer=found.installer,
        commands=upgrade_commands(found, version=str(newest or "VERSION"), index=index),
        sides=sides,
        sides_problem=sides_problem,
    )
    if as_json:
        print_json(report)
    else:
        _print_report(report, found, is_older=is_older)
    if report.upgrade is None:
        sys.exit(Answer.UNKNOWN)
    sys.exit(Answer.NEWER if report.upgrade else Answer.UP_TO_DATE)


def _newest(index: str | None) -> tuple[Version | None, str | None]:
    """Return the newest release in a package index, or why that is not known."""
    if index is None:
        return None, "No package index was asked for the newest release"
    try:
        return newest_release(index, prereleases=Version(__version__).is_prerelease), None
    except PackageIndexError as error:
        return None, str(error)


def _sides() -> tuple[list[Side], str | None]:
    """Ask the service of this user for its version and those of the connected machine agents.

    Returns them, and why some are missing.
    """
    from outrider.machine.settings import DaemonSettings

    try:
        settings = DaemonSettings.from_environment()
    except OutriderError:
        settings = None  # `outrider doctor` says what is wrong
    chosen = access(machine_facts(settings).server)
    facts = service_facts(chosen.url)
    if facts.version is None:
        return [], check_service(facts).message
    sides = [Side(f"the service {facts.url}", facts.version)]
    try:
        connected = connected_machines(chosen)
    except OutriderError as error:
        return sides, f"the machine agents are not listed: {error}"
    sides += [
        Side(f"the machine agent of {printable(one.nickname or one.id)}", one.daemon.version)
        for one in connected
        if one.daemon.version
    ]
    return sides, None


def _is_older(version: str, newest: Version) -> bool:
    """Return whether a version is older; that of another machine agent may be any text."""
    try:
        return Version(version) < newest
    except InvalidVersion:
        return False


def _installed(found: Installation) -> str:
    """Return the words for how it was installed."""
    what = "the machine agent alone, " if found.is_agent_only else ""
    match found.installer:
        case Installer.CONTAINER:
            return f"{what}in a container image"
        case Installer.OTHER:
            return f"{what}installed in a way that is not known"
        case Installer.CHECKOUT:
            return f"{what}run from the checkout {found.folder}"
    origin = f" from {found.folder}" if found.folder is not None else ""
    return f"{what}installed with {found.installer}{origin}"


def _print_commands(commands: list[str]) -> None:
    if commands:
        print_text("\nTo upgrade it (docs/upgrade.md says what to do before and after):\n")
        print_text("".join(f"  {command}\n" for command in commands))
    else:
        print_text("\nUpgrade it with what installed it (docs/upgrade.md).\n")


def _print_report(report: Report, found: Installation, *, is_older: bool) -> None:
    if is_older:
        print_text(
            f"Outrider {report.newest} is available; this is {report.version}, {_installed(found)}."
        )
        _print_commands(report.commands)
    elif report.newest is not None:
        print_text(
            f"Outrider {report.version} is up to date: {report.newest} is the newest release "
            f"in {report.index}."
        )
    others = [side for side in report.sides if side.version != report.version]
    for side in others:
        print_text(f"Not the same version: {side.name} is {side.version}.")
    if report.sides and not others:
        machines = len(report.sides) - 1
        print_text(
            f"The service and {machines} connected machine agent{'s' * (machines != 1)} "
            "have the same version as this command."
        )
    if report.sides_problem is not None:
        print_text(f"Versions not compared: {report.sides_problem}.")
    if report.problem is not None:
        text = f"outrider: {report.problem}. `--index URL` asks one that has Outrider."
        print(escaped_lines(text), file=sys.stderr)
