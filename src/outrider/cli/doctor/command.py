"""`outrider doctor`: run the checks and print their findings."""

import platform
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from outrider import __version__
from outrider.cli.client import credentials
from outrider.cli.client.output import console, is_terminal, print_json
from outrider.cli.doctor import local_checks, service_checks
from outrider.cli.doctor.finding import Finding, Status, failed, skipped
from outrider.cli.doctor.local_facts import (
    agent_facts,
    disk_facts,
    git_facts,
    path_facts,
    port_facts,
    tmux_facts,
)
from outrider.cli.doctor.service_facts import (
    Access,
    access,
    key_facts,
    listed_machine,
    machine_facts,
    service_facts,
)
from outrider.cli.doctor.time_limit import BackgroundWork
from outrider.contract.errors import OutriderError
from outrider.contract.text import escaped_lines

if TYPE_CHECKING:
    from outrider.machine.settings import DaemonSettings
    from outrider.service.settings import Settings

_SETTINGS_SECONDS: Final = 30.0
_LOCAL_SECONDS: Final = 60.0
_AGENTS_SECONDS: Final = 60.0
_SERVICE_SECONDS: Final = 90.0
"""Limits for what has shorter ones of its own, and for what cannot have any, such as a disk.

The checks run at the same time, after the settings are read: two minutes for all.
"""


_MIN_KEY: Final = 8
"""Characters. A shorter text is not a key; replacing it could garble a message."""


class _Configuration(NamedTuple):
    """The settings of this machine; those that are wrong are None, with their errors."""

    service: "Settings | None"
    daemon: "DaemonSettings | None"
    errors: list[str]

    @property
    def data_dir(self) -> Path:
        if self.service is not None:
            return self.service.data_dir
        return Path("~/.local/share/outrider").expanduser()


def doctor(*, as_json: bool) -> None:
    """Run every check, print the findings, and end with 1 if one has failed."""
    if is_terminal() and not as_json:
        with console().status("Checking this machine and its service…"):
            findings = examine()
    else:
        findings = examine()
    is_well = all(finding.status is not Status.FAILED for finding in findings)
    if as_json:
        print_json({"ok": is_well, "checks": findings})
    else:
        _show(findings)
    sys.exit(0 if is_well else 1)


def examine() -> list[Finding]:
    """Run every check, and return the findings in the order of the checks.

    No finding has the API key in it.
    """
    try:
        examination = BackgroundWork(_examination, _SETTINGS_SECONDS).result()
    except (TimeoutError, OSError, RuntimeError) as error:
        reason = str(error) or "this takes too long"
        return [failed("settings", f"they cannot be read: {reason}", "Check HOME and its disk.")]
    checks: list[tuple[str, BackgroundWork[list[Finding]]]] = [
        (name, BackgroundWork(check, seconds)) for name, check, seconds in examination.checks()
    ]
    findings = [finding for name, work in checks for finding in _result(name, work)]
    return [_without(examination.chosen.key, finding) for finding in findings]


class _Examination(NamedTuple):
    """What the checks examine, and a method for each group of checks."""

    configuration: _Configuration
    machine: service_checks.MachineFacts
    chosen: Access

    def checks(self) -> list[tuple[str, Callable[[], list[Finding]], float]]:
        """Return the name, the work and the time limit of each group."""
        return [
            ("outrider", self.outrider, _LOCAL_SECONDS),
            ("settings", self.settings, _LOCAL_SECONDS),
            ("tmux", lambda: [local_checks.check_tmux(tmux_facts())], _LOCAL_SECONDS),
            ("git", lambda: [local_checks.check_git(git_facts())], _LOCAL_SECONDS),
            ("agents", self.agents, _AGENTS_SECONDS),
            ("directories", self.directories, _LOCAL_SECONDS),
            ("disk", self.disk, _LOCAL_SECONDS),
            ("port", self.port, _LOCAL_SECONDS),
            ("service", self.service, _SERVICE_SECONDS),
        ]

    def outrider(self) -> list[Finding]:
        path = shutil.which("outrider")
        return [local_checks.check_outrider(__version__, platform.python_version(), path)]

    def settings(self) -> list[Finding]:
        return [local_checks.check_settings(self.configuration.errors)]

    def agents(self) -> list[Finding]:
        settings = self.configuration.daemon
        if settings is None:
            return [skipped("agents", "settings")]
        return local_checks.check_agents(*agent_facts(settings))

    def directories(self) -> list[Finding]:
        from outrider.machine.settings import DaemonSettings
        from outrider.service.accounts.encryption import key_file
        from outrider.service.settings import LOCAL_ACCOUNT

        data, config = self.configuration.data_dir, credentials.file().parent
        connection = DaemonSettings(config).connection_file
        secrets = [key_file(data), data / LOCAL_ACCOUNT, connection, credentials.file()]
        return [
            *(
                local_checks.check_directory(name, path_facts(path), variable)
                for path, name, variable in (
                    (data, "data directory", "OUTRIDER_DATA_DIR"),
                    (config, "config directory", "OUTRIDER_CONFIG_DIR"),
                )
            ),
            local_checks.check_secret_files(map(path_facts, secrets)),
        ]

    def disk(self) -> list[Finding]:
        return [local_checks.check_disk(disk_facts(self.configuration.data_dir))]

    def port(self) -> list[Finding]:
        settings = self.configuration.service
        if settings is None:
            return [skipped("port", "settings")]
        is_needed = service_checks.is_loopback_url(self.chosen.url)
        return [local_checks.check_port(port_facts(settings), is_needed=is_needed)]

    def service(self) -> list[Finding]:
        answering = service_facts(self.chosen.url)
        key, listed = self.chosen.key_facts, self.machine
        if answering.version is not None:
            key = key_facts(self.chosen)
            if key.account_id is not None:
                listed = listed_machine(self.machine, self.chosen)
        return [
            service_checks.check_service(answering),
            service_checks.check_certificate(answering),
            service_checks.check_clock(answering),
            service_checks.check_key(key, self.machine),
            service_checks.check_versions(answering, listed),
            service_checks.check_machine(listed, answering),
        ]


def _examination() -> _Examination:
    configuration = _configuration()
    machine = machine_facts(configuration.daemon)
    return _Examination(configuration, machine, access(machine.server))


def _configuration() -> _Configuration:
    from outrider.cli.running import SettingError, load_service_settings
    from outrider.machine.settings import DaemonSettings

    errors: list[str] = []
    service, daemon = None, None
    try:
        service = load_service_settings()
    except SettingError as error:
        errors.append(str(error))
    try:
        daemon = DaemonSettings.from_environment()
    except OutriderError as error:
        errors.append(str(error))
    return _Configuration(service, daemon, errors)


def _result(name: str, work: BackgroundWork[list[Finding]]) -> list[Finding]:
    try:
        return work.result()
    except TimeoutError:
        text = f"this check does not end within {work.seconds:g} s"
        return [failed(name, text, "Check the disks and the network of this machine.")]
    except Exception as error:  # noqa: BLE001  # the other checks still help
        text = f"this check failed: {type(error).__name__}: {error}"
        return [failed(name, text, "Report this as an issue of Outrider.")]


def _without(key: str | None, finding: Finding) -> Finding:
    """Return a finding without the key, should an error have repeated it."""
    if not key or len(key) < _MIN_KEY:
        return finding
    advice = finding.advice and finding.advice.replace(key, "…")
    return Finding(finding.name, finding.status, finding.message.replace(key, "…"), advice)


_MARKS: Final[dict[Status, tuple[str, str]]] = {
    Status.OK: ("✓", "green"),
    Status.WARNING: ("!", "yellow"),
    Status.FAILED: ("✗", "bold red"),
    Status.SKIPPED: ("-", "dim"),
}


def _show(findings: list[Finding]) -> None:
    """Print a line for each finding; on a terminal with a mark, and the advice below."""
    if not is_terminal():
        for one in findings:
            cells = [one.status, one.name, one.message, one.advice or ""]
            print("\t".join(map(escaped_lines, cells)).rstrip())
        return
    from rich.table import Table
    from rich.text import Text

    table: Any = Table.grid(padding=(0, 2, 0, 0))
    for one in findings:
        mark, style = _MARKS[one.status]
        text = Text(escaped_lines(one.message))
        if one.advice is not None:
            text.append(f"\n→ {escaped_lines(one.advice)}", "bold" if style != "dim" else style)
        table.add_row(Text(mark, style), Text(one.name, style), text)
    screen = console()
    screen.print(table)
    bad = sum(one.status is Status.FAILED for one in findings)
    if bad:
        screen.print(Text(f"\n{bad} of {len(findings)} checks failed", "bold red"))
    else:
        screen.print(Text("\nNo check failed", "bold green"))
