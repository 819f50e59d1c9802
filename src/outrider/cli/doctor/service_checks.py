"""Checks of the service that the commands use, and of this machine's connection to one."""

import os
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2
import msgspec

from outrider import __version__
from outrider.cli.client import credentials
from outrider.cli.counted import counted
from outrider.cli.doctor.finding import Finding, Status, failed, ok, skipped, warning
from outrider.contract.errors import OutriderError
from outrider.contract.text import printable
from outrider.lock_file import lock_holder
from outrider.sdk import AuthenticationError, Machine, Outrider
from outrider.sdk.configuration import API_PATH, KEY_VARIABLE, URL_VARIABLE, default_url
from outrider.service.http.hosts import is_loopback

if TYPE_CHECKING:
    from outrider.machine.settings import Connection, DaemonSettings

STEP_SECONDS: Final = 15.0
"""The time for each step of a request; a busy machine takes some of them."""

_CERTIFICATE_DAYS: Final = 14
_CLOCK_SECONDS: Final = 60
_MAX_BODY: Final = 4 * 1024 * 1024
_REASON: Final = 200
_EXPIRED: Final = frozenset({9, 10})
_NAME_MISMATCH: Final = frozenset({62, 63, 64})
"""OpenSSL's numbers: not yet valid, expired; host, e-mail, IP address mismatch."""

_NO_ADDRESS: Final = (
    "this is not an http address",
    "Set OUTRIDER_URL to an address such as https://outrider.example.org.",
)


class _Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes
    certificate: dict[str, Any] | None


class Access(NamedTuple):
    """The service and key that the commands of this user use.

    Attributes:
        source: where the key is from; None if there is none.
        problem: why there is none, if not because nobody has logged in.
    """

    url: str
    key: str | None = None
    source: str | None = None
    problem: str | None = None

    def client(self) -> Outrider:
        """Return a client with the key. Raises OutriderError if there is none."""
        return Outrider(self.url, self.key, timeout=STEP_SECONDS, max_retries=0)


class Service(NamedTuple):
    """What answers at the address of the service.

    Attributes:
        url: the address, without a password in it.
        finding: whether Outrider answers there, and is ready.
        version: of the service; None if what answers is not Outrider.
        certificate_seconds: until its certificate expires; None without TLS.
        clock_offset: seconds by which this machine's clock is ahead; None if that is not known.
    """

    url: str
    is_loopback: bool
    finding: Finding
    version: str | None = None
    certificate_seconds: float | None = None
    clock_offset: float | None = None


def access(settings: "DaemonSettings | None") -> Access:
    """Return the service and key of this user's commands.

    Args:
        settings: of the machine agent, whose service it is if nothing else names one.
    """
    named, key, problem = os.environ.get(URL_VARIABLE), None, None
    try:
        named, key = credentials.load()
    except OutriderError as error:
        problem = None if str(error) == credentials.NO_KEY else str(error)
    enrolled, _ = enrollment(settings)
    url = (named or (enrolled and enrolled.server) or default_url()).rstrip("/")
    url = url.removesuffix(API_PATH)
    if key is None:
        return Access(url, problem=problem)
    source = KEY_VARIABLE if os.environ.get(KEY_VARIABLE) else str(credentials.file())
    return Access(url, key.strip(), source)


def enrollment(settings: "DaemonSettings | None") -> tuple["Connection | None", str | None]:
    """Return how this machine is enrolled, or why that cannot be read."""
    from outrider.machine.settings import NotEnrolledError

    try:
        return (None if settings is None else settings.load_connection()), None
    except NotEnrolledError:
        return None, None
    except OutriderError as error:
        return None, str(error)


def is_loopback_url(url: str) -> bool:
    """Return whether an address is on this machine."""
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False


def examine_service(url: str, step_seconds: float = STEP_SECONDS) -> Service:
    """Ask what answers at an address; no key is sent.

    Args:
        step_seconds: to connect, and between two pieces of an answer.
    """
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        parts, is_address = SplitResult("", "", "", "", ""), False
    shown = printable(parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() or url)
    is_local, proxy = is_loopback(parts.hostname or ""), _proxy(parts) if is_address else None
    way = f" through the proxy {proxy}" if proxy else ""

    def no_answer(reason: str, advice: str) -> Service:
        if is_local and proxy:
            advice = "Set NO_PROXY=127.0.0.1,localhost: the proxy cannot reach this machine."
        text = f"no answer from {shown}{way}: {printable(reason)[:_REASON]}"
        return Service(shown, is_local, failed("service", text, advice))

    if not is_address:
        return no_answer(*_NO_ADDRESS)
    try:
        with httpx2.Client(timeout=step_seconds) as http:
            answer = _get(http, f"{url}/openapi.json")
            moment = time.time()
            version = _version(answer)
            # Only of our service: another one may have an endpoint of this name.
            ready = None if version is None else _get(http, f"{url}/readyz")
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, UnicodeError) as error:
        return no_answer(*_reason_and_advice(error, is_proxied=bool(proxy), is_local=is_local))
    expires = (answer.certificate or {}).get("notAfter")
    offset = None
    with suppress(ValueError, KeyError):
        # The header has whole seconds: on average half a second is lost.
        offset = moment - parsedate_to_datetime(answer.headers["date"]).timestamp() - 0.5
    return Service(
        shown,
        is_local,
        _identified(shown, way, answer, ready),
        version,
        None if expires is None else ssl.cert_time_to_seconds(expires) - moment,
        offset,
    )


def _identified(url: str, way: str, answer: _Answer, ready: _Answer | None) -> Finding:
    """Return whether an answer is Outrider's, which is ready; without `ready` it is not."""
    location = answer.headers.get("location") if 300 <= answer.status < 400 else None
    if ready is not None and ready.status == 200:
        return ok("service", f"{url} answers{way}")
    if ready is not None:
        parts = _json(ready).items()
        lacking = [f"{name} {text}" for name, text in parts if text != "ok" and name != "status"]
        reason = printable(", ".join(lacking) or f"status {ready.status}")[:_REASON]
        text = f"{url} is not ready: {reason}"
        advice = "Look into the log of the service, and at its database."
    elif answer.status == 421:
        text = f"{url} refuses this host name"
        advice = (
            "Use the public address of the service, or add the name to its OUTRIDER_ALLOWED_HOSTS."
        )
    elif location is not None:
        text = f"{url} redirects to {printable(location)[:_REASON]}"
        advice = "Use the address that it redirects to: `outrider login --server URL`."
    else:
        text = f"what answers at {url}{way} (status {answer.status}) is not Outrider"
        advice = "Correct the address: set OUTRIDER_URL, or run `outrider login --server URL`."
    return failed("service", text, advice)


def check_all(chosen: Access, settings: "DaemonSettings | None") -> list[Finding]:
    """Check the service, the key, and this machine's connection."""
    service = examine_service(chosen.url)
    enrolled, _ = enrollment(settings)
    key = check_key(chosen, service, enrolled.server if enrolled else None)
    machines = None
    if key.status is Status.OK and chosen.key is not None:
        with suppress(OutriderError), chosen.client() as client:  # a key may not see machines
            machines = client.machines.list(state="all")
    own_id = enrolled.daemon_id if enrolled else None
    own = next((machine for machine in machines or [] if machine.id == own_id), None)
    return [
        service.finding,
        check_certificate(service),
        check_clock(service),
        key,
        check_versions(service, own.version if own else None),
        check_machine(settings, service, own, was_asked=machines is not None),
    ]


def check_certificate(service: Service) -> Finding:
    """Check that the connection is encrypted, and that the certificate does not expire soon."""
    name = "certificate"
    if not service.url.startswith("https:"):
        if service.is_loopback:
            return ok(name, "none is needed on this machine")
        text = "the connection is not encrypted: others on the way can read the key"
        return warning(name, text, "Use an https address (docs/deploy.md).")
    if service.certificate_seconds is None:
        return skipped(name, "service")
    days = int(service.certificate_seconds / 86400)
    if days < _CERTIFICATE_DAYS:
        text = f"the certificate expires in {counted(days, 'day')}"
        return warning(name, text, "Renew the certificate of the service.")
    return ok(name, f"valid for {days} more days")


def check_clock(service: Service) -> Finding:
    """Check that this machine and the service agree about the time."""
    if service.clock_offset is None:
        return skipped("clock", "service")
    seconds = round(abs(service.clock_offset))
    if seconds > _CLOCK_SECONDS:
        side = "ahead of" if service.clock_offset > 0 else "behind"
        advice = "Set the clock by the network, with `timedatectl set-ntp true`, on both machines."
        return failed("clock", f"this machine is {seconds} s {side} the service", advice)
    return ok("clock", "this machine and the service agree")


def check_key(chosen: Access, service: Service, enrolled_with: str | None) -> Finding:
    """Check that the service accepts the API key.

    A machine that is enrolled with a service elsewhere needs none: its agent has a token.
    """
    login = "Run `outrider login --server URL` with a valid key."
    if chosen.key is None:
        if chosen.problem is None and enrolled_with and not is_loopback_url(enrolled_with):
            text = "the machine agent needs none; `outrider login` stores one for commands"
            return ok("key", text)
        advice = "; `outrider up` prints a key, and so does `outrider admin key create`."
        text = chosen.problem or "there is no API key"
        return failed("key", text, f"Run `outrider login --server URL`{advice}")
    unknown = failed("key", f"the service does not know the key of {chosen.source}", login)
    if not (chosen.key.isascii() and chosen.key.isprintable() and chosen.key):
        return unknown
    if service.version is None:
        return skipped("key", "service")
    try:
        with chosen.client() as client:
            account = client.account().id
    except AuthenticationError:
        return unknown
    except OutriderError as error:
        text = f"the key of {chosen.source} cannot be checked: {error}"
        return failed("key", text, "Try again in a minute, or look into the log of the service.")
    return ok("key", f"the key of {chosen.source} is valid (account {account})")


def check_versions(service: Service, machine_agent: str | None) -> Finding:
    """Check that the command, the service and the machine agent have the same version."""
    if service.version is None:
        return skipped("versions", "service")
    sides = {"the service": service.version}
    if machine_agent:
        sides["the machine agent"] = machine_agent
    others = [f"{name} {version}" for name, version in sides.items() if version != __version__]
    if others:
        return warning(
            "versions",
            f"this command is {__version__}, {' and '.join(others)}",
            "Install the newer one on both sides, the service first, and restart them; "
            "`outrider upgrade` says how.",
        )
    return ok("versions", f"{', '.join(['this command', *sides])}: {__version__}")


def check_machine(
    settings: "DaemonSettings | None", service: Service, machine: Machine | None, *, was_asked: bool
) -> Finding:
    """Check that this machine is enrolled, and its agent runs and is connected.

    Args:
        machine: this one as the service has it, if `was_asked`; None if the account has it not.
    """
    name, (enrolled, problem) = "machine", enrollment(settings)
    if problem is not None:
        return failed(name, problem, "Run `outrider setup --server URL` again.")
    if settings is None or enrolled is None:
        return warning(
            name,
            "this machine is not enrolled, so no agents can be started on it",
            "Run `outrider up`, or `outrider setup --server URL` and `outrider daemon`.",
        )
    who, process = f"{enrolled.nickname!r} ({enrolled.daemon_id})", lock_holder(settings.lock_file)
    if process is None:
        return failed(
            name,
            f"{who} is enrolled with {enrolled.server}, but its machine agent does not run",
            "Start it with `outrider daemon`, or with `outrider up` if the service is here too.",
        )
    runs = f"{who}: its machine agent runs (process {process})"
    if not was_asked:
        return ok(name, f"{runs}; the service was not asked about it")
    if machine is None:
        return warning(
            name,
            f"{runs}, but this account at {service.url} does not have the machine; "
            f"it is enrolled with {enrolled.server}",
            "Use a key of the machine's account, or enroll it again with `outrider setup`.",
        )
    if not machine.connected:
        advice = "Look into the log of the machine agent, and restart it."
        return failed(name, f"{runs}, but the service has no connection to it", advice)
    return ok(name, f"{runs} and is connected")


def _get(http: httpx2.Client, url: str) -> _Answer:
    with http.stream("GET", url) as response:
        connection = response.extensions.get("network_stream")
        # Before the body: after it the connection may be closed, and its certificate gone.
        tls = connection.get_extra_info("ssl_object") if connection is not None else None
        certificate = tls.getpeercert() if tls is not None else None
        body = b""
        for part in response.iter_bytes():
            body += part
            if len(body) > _MAX_BODY:
                break
    return _Answer(response.status_code, response.headers, body, certificate)


def _version(answer: _Answer) -> str | None:
    """Return the version in the description of the API; None if it is another one's."""
    info = _object(_json(answer).get("info"))
    is_ours = answer.status == 200 and info.get("title") == "Outrider"
    return printable(str(info.get("version")))[:_REASON] if is_ours else None


def _json(answer: _Answer) -> dict[str, Any]:
    with suppress(msgspec.DecodeError, UnicodeError):
        return _object(msgspec.json.decode(answer.body))
    return {}


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _reason_and_advice(error: Exception, *, is_proxied: bool, is_local: bool) -> tuple[str, str]:
    """Return why a request failed, and what to do."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            advice = "Set SSL_CERT_FILE to a file with the certificate of its issuer."
            if cause.verify_code in _EXPIRED:
                advice = "Renew the certificate of the service, and check this machine's date."
            elif cause.verify_code in _NAME_MISMATCH:
                advice = "Use an address whose host the certificate names."
            return cause.verify_message, advice
        if isinstance(cause, ssl.SSLError):
            advice = "Check that the service, or the proxy before it, speaks TLS at this port."
            return cause.reason or str(cause), advice
        if isinstance(cause, socket.gaierror):
            advice = "Check the name in the address, and the network of this machine."
            return cause.strerror or str(cause), advice
    reason = str(error) or type(error).__name__
    if isinstance(error, httpx2.TimeoutException):
        return "not in time", "Check the address, and the network and firewalls on the way."
    if is_proxied:
        return reason, "Check the proxy, or name the host in NO_PROXY to go without it."
    if isinstance(error, httpx2.InvalidURL | UnicodeError | httpx2.UnsupportedProtocol):
        return _NO_ADDRESS
    if is_local:
        here = "Start one here with `outrider up`, or use another with "
        return reason, f"{here}`outrider login --server URL`."
    return reason, "Check the address, and that the service runs and lets this machine in."


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _proxy(parts: SplitResult) -> str | None:
    """Return the proxy to an address, without its password."""
    if proxy_bypass(parts.hostname or ""):
        return None
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    return None if not proxy else printable(proxy.rpartition("@")[2])
