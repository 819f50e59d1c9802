"""What `outrider up` adds on a person's terminal: agents found, a QR code, the browser.

Programs that read the output of `outrider up` get none of it.
"""

import html
import io
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import typer

from outrider.contract.resources import Provider
from outrider.service.http.hosts import is_loopback
from outrider.service.settings import Settings

_START_SECONDS: Final = 5.0
"""How long the program that opens the browser may take to start."""

_LISTENS_ON_ALL: Final = ("0.0.0.0", "::")  # noqa: S104


def welcome(
    providers: Sequence[Provider], phone_url: str | None, environment: Mapping[str, str]
) -> str:
    """Return the installed agents, and a QR code if a phone can reach the service."""
    installed = [provider for provider in providers if provider.installed and not provider.demo]
    names = [provider.display_name for provider in installed]
    agents = f"Agents found here: {', '.join(names)}\n" if names else ""
    if phone_url is None:
        return agents
    return (
        f"{agents}\nOn a phone, scan this, and use the login above:\n\n"
        f"{_qr_code(phone_url, is_colored='NO_COLOR' not in environment)}  {phone_url}\n"
    )


def may_open_browser(environment: Mapping[str, str], *, system: str) -> bool:
    """Return whether the person at the terminal can see a browser: not in CI, not over ssh.

    Args:
        system: as `sys.platform` names it.
    """
    if environment.get("CI"):
        return False
    if environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"):
        return True
    is_remote = any(environment.get(name) for name in ("SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY"))
    return system == "darwin" and not is_remote


def phone_url(settings: Settings, port: int) -> str | None:
    """Return the URL of the service for other devices; None if they cannot reach it.

    Args:
        port: the port that the service listens on.
    """
    if settings.public_host is not None:
        return None if is_loopback(settings.public_host) else f"{settings.base_url}/"
    host = _address_in_network() if settings.host in _LISTENS_ON_ALL else settings.host
    if host is None or is_loopback(settings.host) or is_loopback(host):
        return None
    if settings.served_hosts is not None and host not in settings.served_hosts:
        return None
    return f"{settings.local_url(host, port)}/"


def open_browser(url: str, file: Path) -> bool:
    """Open a URL in the browser; return whether the program for that was started.

    The URL has a token, and other users can read the arguments of programs. So the browser gets
    a file that only this user can read and that leads to the URL.
    """
    opener = shutil.which("open" if sys.platform == "darwin" else "xdg-open")
    if opener is None:
        return False
    link = html.escape(url)
    page = (
        '<!doctype html><meta charset="utf-8"><title>Outrider</title>'
        f'<meta http-equiv="refresh" content="0; url={link}"><a href="{link}">Open Outrider</a>\n'
    )
    # The shell ends at once: what it started belongs to nobody here, also if it is the browser.
    command = ["sh", "-c", '"$0" "$1" >/dev/null 2>&1 &', opener, str(file)]
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as output:
            output.write(page)
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_START_SECONDS,
            start_new_session=True,  # Ctrl-C is for Outrider, not for the browser
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):  # the link is printed as well
        return False
    return True


def greet_person(
    settings: Settings,
    port: int,
    providers: Sequence[Provider],
    new_password_link: Callable[[], str],
    file: Path | None,
) -> None:
    """Print the welcome and open the browser, if standard output is a person's terminal.

    Args:
        new_password_link: returns a URL that opens the dashboard signed in, once.
        file: leads the browser to such a URL; None not to open it.
    """
    if not sys.stdout.isatty():
        return
    is_opened = (
        file is not None
        and may_open_browser(os.environ, system=sys.platform)
        and open_browser(new_password_link(), file)
    )
    text = welcome(providers, phone_url(settings, port), os.environ)
    if is_opened:
        text += "\nThe dashboard opens in the browser (not with --no-browser).\n"
    with suppress(UnicodeEncodeError):  # a terminal that cannot show the blocks
        typer.echo(text, nl=False)


def _qr_code(text: str, *, is_colored: bool) -> str:
    """Return a QR code in half blocks; with colors, light on dark also on a light terminal."""
    import segno  # most starts show no code

    output = io.StringIO()
    segno.make_qr(text, error="l").terminal(output, border=2, compact=True)
    lines = output.getvalue().splitlines()
    before, after = ("\x1b[97;40m", "\x1b[0m") if is_colored else ("", "")
    return "".join(f"  {before}{line}{after}\n" for line in lines)


def _address_in_network() -> str | None:
    """Return this machine's address in its network; None if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: the kernel chooses the route
        except OSError:
            return None
        return str(probe.getsockname()[0])
