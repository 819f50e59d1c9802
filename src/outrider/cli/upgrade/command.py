"""`outrider upgrade`: say whether a newer release exists, and how to install it."""

import sys
from concurrent.futures import Future
from enum import IntEnum
from typing import Final, NoReturn

from packaging.version import InvalidVersion, Version

from outrider import __version__
from outrider.cli.doctor.finding import in_background
from outrider.cli.doctor.service_checks import access, examine_service
from outrider.cli.printing import print_json, print_text, warn
from outrider.cli.upgrade import installation
from outrider.cli.upgrade.installation import upgrade_commands
from outrider.cli.upgrade.package_index import PackageIndexError, newest_release, without_password
from outrider.contract.errors import OutriderError
from outrider.contract.text import printable

_SERVICE_SECONDS: Final = 60.0
"""The limit for what has shorter ones of its own, such as each step of a request."""

Sides = tuple[list[tuple[str, str]], str | None]
"""The service and its machine agents with their versions, and why some are missing."""


class Answer(IntEnum):
    """The exit codes of `--check`."""

    UP_TO_DATE = 0
    NEWER = 1
    UNKNOWN = 2


def show(*, index: str | None, as_json: bool) -> None:
    """Print how to upgrade this installation. No network is used."""
    here = installation.find()
    commands = upgrade_commands(here, index=index)
    if as_json:
        print_json({"version": __version__, "installer": here.installer, "commands": commands})
        return
    print_text(f"This is Outrider {__version__}, {here.described}.")
    _print_commands(commands)
    print_text("`outrider upgrade --check --index URL` says whether there is a newer release.")


def check(*, index: str | None, as_json: bool) -> NoReturn:
    """Ask the package index and the service, print the result, and end with an `Answer`."""
    here = installation.find()
    # Beside the index: both may take as long as they are allowed to.
    asking = in_background(_sides)
    newest: Version | None = None
    problem: str | None = "No package index was asked for the newest release"
    if index is not None:
        try:
            prereleases = Version(__version__).is_prerelease
            newest, problem = newest_release(index, prereleases=prereleases), None
        except PackageIndexError as error:
            problem = str(error)
    sides, missing = _answered(asking)
    is_older = newest is not None and _is_older(__version__, newest)
    upgrade = None
    if newest is not None:
        upgrade = is_older or any(_is_older(version, newest) for _, version in sides)
    commands = upgrade_commands(here, version=str(newest or "VERSION"), index=index)
    if as_json:
        print_json(
            {
                "version": __version__,
                "newest": None if newest is None else str(newest),
                "upgrade": upgrade,
                "index": None if index is None else without_password(index),
                "problem": problem,
                "installer": here.installer,
                "commands": commands,
                "sides": [{"name": name, "version": version} for name, version in sides],
                "sidesProblem": missing,
            }
        )
    else:
        if is_older:
            print_text(f"Outrider {newest} is available; this is {__version__}, {here.described}.")
            _print_commands(commands)
        elif newest is not None:
            print_text(
                f"Outrider {__version__} is up to date: {newest} is the newest release "
                f"in {without_password(index or '')}."
            )
        _print_sides(sides, missing)
        if problem is not None:
            warn(f"{problem}. `--index URL` asks one that has Outrider.")
    if upgrade is None:
        sys.exit(Answer.UNKNOWN)
    sys.exit(Answer.NEWER if upgrade else Answer.UP_TO_DATE)


def _answered(asking: "Future[Sides]") -> Sides:
    try:
        return asking.result(_SERVICE_SECONDS)
    except (TimeoutError, OSError, RuntimeError) as error:
        return [], str(error) or "the service does not answer in time"


def _sides() -> Sides:
    """Ask the service of this user for its version and those of the connected machine agents."""
    from outrider.machine.settings import DaemonSettings

    try:
        settings = DaemonSettings.from_environment()
    except OutriderError:
        settings = None  # `outrider doctor` says what is wrong
    chosen = access(settings)
    service = examine_service(chosen.url)
    if service.version is None:
        return [], service.finding.message
    sides = [(f"the service {service.url}", service.version)]
    problem = chosen.problem or "there is no API key" if chosen.key is None else None
    try:
        if problem is None:
            with chosen.client() as client:
                connected = client.machines.list()
            sides += [
                (f"the machine agent of {printable(machine.nickname or machine.id)}", version)
                for machine in connected
                if (version := machine.version)
            ]
    except OutriderError as error:
        problem = str(error)
    return sides, problem and f"the machine agents are not listed: {problem}"


def _is_older(version: str, newest: Version) -> bool:
    """Return whether a version is older; that of another machine agent may be any text."""
    try:
        return Version(version) < newest
    except InvalidVersion:
        return False


def _print_commands(commands: list[str]) -> None:
    if commands:
        print_text("\nTo upgrade it (docs/upgrade.md says what to do before and after):\n")
        print_text("".join(f"  {command}\n" for command in commands))
    else:
        print_text("\nUpgrade it with what installed it (docs/upgrade.md).\n")


def _print_sides(sides: list[tuple[str, str]], missing: str | None) -> None:
    others = [side for side in sides if side[1] != __version__]
    for name, version in others:
        print_text(f"Not the same version: {name} is {version}.")
    if sides and not others:
        machines = len(sides) - 1
        print_text(
            f"The service and {machines} connected machine agent{'s' * (machines != 1)} "
            "have the same version as this command."
        )
    if missing is not None:
        print_text(f"Versions not compared: {missing}.")
