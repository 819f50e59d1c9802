"""Checks of the service that the commands use, and of this machine's connection to one."""

from enum import StrEnum
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from outrider import __version__
from outrider.cli.counted import counted
from outrider.cli.doctor.finding import Finding, failed, ok, skipped, warning
from outrider.service.http.hosts import is_loopback

_CERTIFICATE_DAYS: Final = 14
_CLOCK_SECONDS: Final = 60


class Failure(StrEnum):
    """Why there is no answer from the service."""

    ADDRESS = "address"
    NAME = "name"
    CONNECT = "connect"
    TIMEOUT = "timeout"
    PROXY = "proxy"
    TLS_EXPIRED = "expired"
    TLS_ISSUER = "issuer"
    TLS_NAME = "certificate name"
    TLS = "tls"


class ServiceFacts(NamedTuple):
    """What answers at the address of the service.

    Attributes:
        url: the address, without a password in it.
        is_loopback: whether it is on this machine.
        proxy: the address of the proxy to it.
        failure: why there is no answer; `reason` has the words of the system.
        status: of the answer to `GET /openapi.json`; `location` is where it redirects to.
        version: of the service; None if what answers is not Outrider.
        not_ready: what the service says it lacks; None if it is ready.
        certificate_seconds: until its certificate expires; None without TLS.
        clock_offset: seconds by which this machine's clock is ahead; None if that is not known.
    """

    url: str
    is_loopback: bool
    proxy: str | None = None
    failure: Failure | None = None
    reason: str = ""
    status: int = 0
    location: str | None = None
    version: str | None = None
    not_ready: str | None = None
    certificate_seconds: float | None = None
    clock_offset: float | None = None


class KeyFacts(NamedTuple):
    """The API key that commands use.

    Attributes:
        source: where it is from; None if there is none.
        problem: why there is none, or why it cannot be used.
        account_id: the account that the service takes it for.
        is_refused: whether the service does not know the key.
        is_checked: false if there was no service to ask.
    """

    source: str | None
    problem: str | None = None
    account_id: str | None = None
    is_refused: bool = False
    is_checked: bool = True


class MachineFacts(NamedTuple):
    """This machine's connection to a service.

    Attributes:
        id, nickname, server: of its enrollment; None if it is not enrolled.
        failure: why the file with the connection cannot be read.
        process: the id of the machine agent that runs; None if none does.
        listed: whether the service knows the machine in this account; None if it was not asked.
        is_connected: whether the service has its connection.
        version: of the machine agent, as the service knows it.
    """

    id: str | None = None
    nickname: str | None = None
    server: str | None = None
    failure: str | None = None
    process: str | None = None
    listed: bool | None = None
    is_connected: bool = False
    version: str | None = None


def is_loopback_url(url: str) -> bool:
    """Return whether an address is on this machine."""
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False


_ADVICE: Final = {
    Failure.ADDRESS: "Set OUTRIDER_URL to an address such as https://outrider.example.org.",
    Failure.NAME: "Check the name in the address, and the network of this machine.",
    Failure.CONNECT: "Check the address, and that the service runs and lets this machine in.",
    Failure.TIMEOUT: "Check the address, and the network and firewalls on the way.",
    Failure.PROXY: "Check the proxy, or name the host in NO_PROXY to go without it.",
    Failure.TLS_EXPIRED: "Renew the certificate of the service, and check this machine's date.",
    Failure.TLS_ISSUER: "Set SSL_CERT_FILE to a file with the certificate of its issuer.",
    Failure.TLS_NAME: "Use an address whose host the certificate names.",
    Failure.TLS: "Check that the service, or the proxy before it, speaks TLS at this port.",
}


def check_service(facts: ServiceFacts) -> Finding:
    """Check that Outrider answers at the address, and is ready."""
    name, way = "service", f" through the proxy {facts.proxy}" if facts.proxy else ""
    if facts.failure is not None:
        advice = _ADVICE[facts.failure]
        if facts.is_loopback and facts.proxy:
            advice = "Set NO_PROXY=127.0.0.1,localhost: the proxy cannot reach this machine."
        elif facts.is_loopback and facts.failure is Failure.CONNECT:
            advice = (
                "Start one here with `outrider up`, or use another with "
                "`outrider login --server URL`."
            )
        return failed(name, f"no answer from {facts.url}{way}: {facts.reason}", advice)
    if facts.status == 421:
        return failed(
            name,
            f"{facts.url} refuses this host name",
            "Use the public address of the service, or add the name to its OUTRIDER_ALLOWED_HOSTS.",
        )
    if facts.location is not None:
        return failed(
            name,
            f"{facts.url} redirects to {facts.location}",
            "Use the address that it redirects to: `outrider login --server URL`.",
        )
    if facts.version is None:
        return failed(
            name,
            f"what answers at {facts.url}{way} (status {facts.status}) is not Outrider",
            "Correct the address: set OUTRIDER_URL, or run `outrider login --server URL`.",
        )
    if facts.not_ready is not None:
        return failed(
            name,
            f"{facts.url} is not ready: {facts.not_ready}",
            "Look into the log of the service, and at its database.",
        )
    return ok(name, f"{facts.url} answers{way}")


def check_certificate(facts: ServiceFacts) -> Finding:
    """Check that the connection is encrypted, and that the certificate does not expire soon."""
    name = "certificate"
    if urlsplit(facts.url).scheme != "https":
        if facts.is_loopback:
            return ok(name, "none is needed on this machine")
        return warning(
            name,
            "the connection is not encrypted: others on the way can read the key",
            "Use an https address (docs/deploy.md).",
        )
    if facts.certificate_seconds is None:
        return skipped(name, "service")
    days = int(facts.certificate_seconds / 86400)
    if days < _CERTIFICATE_DAYS:
        return warning(
            name,
            f"the certificate expires in {counted(days, 'day')}",
            "Renew the certificate of the service.",
        )
    return ok(name, f"valid for {days} more days")


def check_clock(facts: ServiceFacts) -> Finding:
    """Check that this machine and the service agree about the time."""
    if facts.clock_offset is None:
        return skipped("clock", "service")
    seconds = round(abs(facts.clock_offset))
    if seconds > _CLOCK_SECONDS:
        side = "ahead of" if facts.clock_offset > 0 else "behind"
        return failed(
            "clock",
            f"this machine is {seconds} s {side} the service",
            "Set the clock by the network, with `timedatectl set-ntp true`, on both machines.",
        )
    return ok("clock", "this machine and the service agree")


def check_key(facts: KeyFacts, machine: MachineFacts) -> Finding:
    """Check that the service accepts the API key.

    A machine that is enrolled with a service elsewhere needs none: its agent has a token.
    """
    login = "Run `outrider login --server URL` with a valid key."
    is_agent_alone = machine.server is not None and not is_loopback_url(machine.server)
    if facts.source is None and facts.problem is None and is_agent_alone:
        return ok("key", "the machine agent needs none; `outrider login` stores one for commands")
    if facts.source is None:
        text = "there is no API key" if facts.problem is None else facts.problem
        return failed(
            "key",
            text,
            "Run `outrider login --server URL`; `outrider up` prints a key, and so does "
            "`outrider admin key create`.",
        )
    if facts.is_refused:
        return failed("key", f"the service does not know the key of {facts.source}", login)
    if not facts.is_checked:
        return skipped("key", "service")
    if facts.account_id is None:
        text = f"the key of {facts.source} cannot be checked: {facts.problem or 'no answer'}"
        return failed("key", text, "Try again in a minute, or look into the log of the service.")
    return ok("key", f"the key of {facts.source} is valid (account {facts.account_id})")


def check_versions(service: ServiceFacts, machine: MachineFacts, own: str = __version__) -> Finding:
    """Check that the command, the service and the machine agent have the same version."""
    if service.version is None:
        return skipped("versions", "service")
    all_of_them = {"the service": service.version}
    if machine.version:
        all_of_them["the machine agent"] = machine.version
    others = [f"{name} {version}" for name, version in all_of_them.items() if version != own]
    if others:
        return warning(
            "versions",
            f"this command is {own}, {' and '.join(others)}",
            "Install the newer one on both sides, the service first, and restart them; "
            "`outrider upgrade` says how.",
        )
    return ok("versions", f"{', '.join(['this command', *all_of_them])}: {own}")


def check_machine(machine: MachineFacts, service: ServiceFacts) -> Finding:
    """Check that this machine is enrolled, and its agent runs and is connected."""
    name = "machine"
    if machine.failure is not None:
        return failed(name, machine.failure, "Run `outrider setup --server URL` again.")
    if machine.id is None:
        return warning(
            name,
            "this machine is not enrolled, so no agents can be started on it",
            "Run `outrider up`, or `outrider setup --server URL` and `outrider daemon`.",
        )
    who = f"{machine.nickname!r} ({machine.id})"
    if machine.process is None:
        return failed(
            name,
            f"{who} is enrolled with {machine.server}, but its machine agent does not run",
            "Start it with `outrider daemon`, or with `outrider up` if the service is here too.",
        )
    runs = f"{who}: its machine agent runs (process {machine.process})"
    if machine.listed is None:
        return ok(name, f"{runs}; the service was not asked about it")
    if not machine.listed:
        return warning(
            name,
            f"{runs}, but this account at {service.url} does not have the machine; "
            f"it is enrolled with {machine.server}",
            "Use a key of the machine's account, or enroll it again with `outrider setup`.",
        )
    if not machine.is_connected:
        return failed(
            name,
            f"{runs}, but the service has no connection to it",
            "Look into the log of the machine agent, and restart it.",
        )
    return ok(name, f"{runs} and is connected")
