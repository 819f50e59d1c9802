"""`outrider doctor`: run the checks and print their findings."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from outrider.cli.client import credentials
from outrider.cli.doctor import local_checks, service_checks
from outrider.cli.doctor.finding import Finding, Status, failed, in_background, skipped
from outrider.cli.printing import console, is_terminal, print_json
from outrider.contract.errors import OutriderError
from outrider.contract.text import escaped_lines

if TYPE_CHECKING:
    from outrider.machine.settings import DaemonSettings
    from outrider.service.settings import Settings

_SETTINGS_SECONDS: Final = 20.0
_SECONDS: Final = 90.0
"""For all checks, which run at the same time, after the settings are read."""

_MIN_KEY: Final = 8
"""Characters. A shorter text is not a key; replacing it could garble a message."""


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
        examination = in_background(_examination).result(_SETTINGS_SECONDS)
    except (TimeoutError, OSError, RuntimeError) as error:
        reason = str(error) or "this takes too long"
        return [failed("settings", f"they cannot be read: {reason}", "Check HOME and its disk.")]
    deadline = time.monotonic() + _SECONDS
    # All begin before the first result is awaited, so one deadline holds for all.
    running = [(name, in_background(check)) for name, check in examination.checks()]
    findings: list[Finding] = []
    for name, result in running:
        try:
            findings += result.result(max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            text = f"this check does not end within {_SECONDS:g} s"
            advice = "Check the disks and the network of this machine."
            findings.append(failed(name, text, advice))
        except Exception as error:  # noqa: BLE001  # the other checks still help
            text = f"this check failed: {type(error).__name__}: {error}"
            findings.append(failed(name, text, "Report this as an issue of Outrider."))
    return [_without(examination.chosen.key, finding) for finding in findings]


class _Examination(NamedTuple):
    """The settings of this machine; those that are wrong are None, with their errors."""

    service_settings: "Settings | None"
    machine_settings: "DaemonSettings | None"
    errors: list[str]
    chosen: service_checks.Access

    def checks(self) -> list[tuple[str, Callable[[], list[Finding]]]]:
        """Return the name and the work of each group of checks."""
        return [
            ("outrider", lambda: [local_checks.check_outrider()]),
            ("settings", lambda: [local_checks.check_settings(self.errors)]),
            ("tmux", lambda: [local_checks.check_tmux()]),
            ("git", lambda: [local_checks.check_git()]),
            ("agents", self._agents),
            ("directories", self._directories),
            ("disk", lambda: [local_checks.check_disk(self._data_dir)]),
            ("port", self._port),
            ("service", self._service),
        ]

    @property
    def _data_dir(self) -> Path:
        if self.service_settings is not None:
            return self.service_settings.data_dir
        return Path("~/.local/share/outrider").expanduser()

    def _agents(self) -> list[Finding]:
        if self.machine_settings is None:
            return [skipped("agents", "settings")]
        return local_checks.check_agents(self.machine_settings)

    def _directories(self) -> list[Finding]:
        from outrider.machine.settings import DaemonSettings
        from outrider.service.accounts.encryption import key_file
        from outrider.service.settings import LOCAL_ACCOUNT

        data, config = self._data_dir, credentials.file().parent
        connection = DaemonSettings(config).connection_file
        secrets = [key_file(data), data / LOCAL_ACCOUNT, connection, credentials.file()]
        return [
            local_checks.check_directory("data directory", data, "OUTRIDER_DATA_DIR"),
            local_checks.check_directory("config directory", config, "OUTRIDER_CONFIG_DIR"),
            local_checks.check_secret_files(secrets),
        ]

    def _port(self) -> list[Finding]:
        if self.service_settings is None:
            return [skipped("port", "settings")]
        is_needed = service_checks.is_loopback_url(self.chosen.url)
        return [local_checks.check_port(self.service_settings, is_needed=is_needed)]

    def _service(self) -> list[Finding]:
        return service_checks.check_all(self.chosen, self.machine_settings)


def _examination() -> _Examination:
    from outrider.cli.running import SettingError, load_service_settings
    from outrider.machine.settings import DaemonSettings

    errors: list[str] = []
    service, machine = None, None
    try:
        service = load_service_settings()
    except SettingError as error:
        errors.append(str(error))
    try:
        machine = DaemonSettings.from_environment()
    except OutriderError as error:
        errors.append(str(error))
    return _Examination(service, machine, errors, service_checks.access(machine))


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
        for finding in findings:
            cells = [finding.status, finding.name, finding.message, finding.advice or ""]
            print("\t".join(map(escaped_lines, cells)).rstrip())
        return
    from rich.table import Table
    from rich.text import Text

    table: Any = Table.grid(padding=(0, 2, 0, 0))
    for finding in findings:
        mark, style = _MARKS[finding.status]
        text = Text(escaped_lines(finding.message))
        if finding.advice is not None:
            text.append(f"\n→ {escaped_lines(finding.advice)}", "bold" if style != "dim" else style)
        table.add_row(Text(mark, style), Text(finding.name, style), text)
    screen = console()
    screen.print(table)
    bad = sum(finding.status is Status.FAILED for finding in findings)
    if bad:
        screen.print(Text(f"\n{bad} of {len(findings)} checks failed", "bold red"))
    else:
        screen.print(Text("\nNo check failed", "bold green"))
