"""Gather facts of the service: who answers, with which key, and whether it has this machine."""

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

from outrider.cli.client import credentials
from outrider.cli.doctor.service_checks import Failure, KeyFacts, MachineFacts, ServiceFacts
from outrider.contract.errors import OutriderError
from outrider.contract.text import printable
from outrider.lock_file import lock_holder
from outrider.sdk import AuthenticationError, Machine, Outrider
from outrider.sdk.configuration import API_PATH, KEY_VARIABLE, URL_VARIABLE, default_url
from outrider.sdk.errors import MissingApiKey
from outrider.service.http.hosts import is_loopback

if TYPE_CHECKING:
    from outrider.machine.settings import DaemonSettings

STEP_SECONDS: Final = 15.0
"""The time for each step of a request; a busy machine takes some of them."""

_MAX_BODY: Final = 4 * 1024 * 1024
_REASON: Final = 200
_EXPIRED: Final = frozenset({9, 10})
_NAME_MISMATCH: Final = frozenset({62, 63, 64})
"""OpenSSL's numbers: not yet valid, expired; host, e-mail, IP address mismatch."""


class Access(NamedTuple):
    """The service and key that commands use. `key_facts` are what is known without the service."""

    url: str
    key: str | None
    key_facts: KeyFacts


class _Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes
    certificate: dict[str, Any] | None
    at: float


def access(enrolled_with: str | None) -> Access:
    """Return the service and key of this user's commands.

    Args:
        enrolled_with: the service of the machine agent, if nothing else names one.
    """
    saved, problem = None, None
    with suppress(OutriderError):  # the file is not needed if the environment has everything
        saved = credentials.load_saved()
    try:
        key: str | None = credentials.load().key
    except OutriderError as error:
        key, problem = None, None if str(error) == credentials.NO_KEY else str(error)
    named = os.environ.get(URL_VARIABLE) or (saved.server if saved else None)
    url = (named or enrolled_with or default_url()).rstrip("/").removesuffix(API_PATH)
    if key is None:
        return Access(url, None, KeyFacts(None, problem))
    source = KEY_VARIABLE if os.environ.get(KEY_VARIABLE) else str(credentials.file())
    key = key.strip()
    is_none = not (key.isascii() and key.isprintable() and key)
    return Access(url, key, KeyFacts(source, is_refused=is_none, is_checked=False))


def service_facts(url: str, step_seconds: float = STEP_SECONDS) -> ServiceFacts:
    """Ask what answers at an address.

    Args:
        step_seconds: to connect, and between two pieces of an answer.
    """
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        parts, is_address = SplitResult("", "", "", "", ""), False
    shown = printable(parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() or url)
    facts = ServiceFacts(shown, is_loopback=is_loopback(parts.hostname or ""))
    if not is_address:
        return facts._replace(failure=Failure.ADDRESS, reason="this is not an http address")
    facts = facts._replace(proxy=_proxy(parts))
    try:
        with httpx2.Client(timeout=step_seconds) as http:
            answer = _get(http, f"{url}/openapi.json")
            facts = _described(facts, answer)
            if facts.version is not None:
                facts = facts._replace(not_ready=_not_ready(_get(http, f"{url}/readyz")))
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, UnicodeError) as error:
        failure, reason = _failure(error, is_proxied=facts.proxy is not None)
        return facts._replace(failure=failure, reason=printable(reason)[:_REASON])
    return facts


def key_facts(chosen: Access) -> KeyFacts:
    """Ask the service about the key."""
    if chosen.key is None or chosen.key_facts.is_refused:
        return chosen.key_facts
    facts = chosen.key_facts._replace(is_checked=True)
    try:
        with _api(chosen) as client:
            return facts._replace(account_id=client.account().id)
    except AuthenticationError:
        return facts._replace(is_refused=True)
    except OutriderError as error:
        return facts._replace(problem=str(error))


def machine_facts(settings: "DaemonSettings | None") -> MachineFacts:
    """Return this machine's enrollment, and whether its agent runs."""
    from outrider.machine.settings import NotEnrolledError

    if settings is None:
        return MachineFacts()
    try:
        enrolled = settings.load_connection()
    except NotEnrolledError:
        return MachineFacts()
    except OutriderError as error:
        return MachineFacts(failure=str(error))
    return MachineFacts(
        id=enrolled.daemon_id,
        nickname=enrolled.nickname,
        server=enrolled.server,
        process=lock_holder(settings.lock_file),
    )


def listed_machine(facts: MachineFacts, chosen: Access) -> MachineFacts:
    """Ask the service, with a valid key, about this machine."""
    if facts.id is None:
        return facts
    try:
        with _api(chosen) as client:
            machines = client.machines.list(state="all")
    except OutriderError:  # a key that may not see machines
        return facts
    found = next((one for one in machines if one.id == facts.id), None)
    if found is None:
        return facts._replace(listed=False)
    return facts._replace(
        listed=True, is_connected=found.connected, version=found.daemon.version or None
    )


def connected_machines(chosen: Access) -> list[Machine]:
    """Return the account's machines whose agents are connected.

    Raises:
        OutriderError: there is no valid key, or the service does not answer.
    """
    if chosen.key is None:
        raise MissingApiKey(chosen.key_facts.problem or "there is no API key")
    with _api(chosen) as client:
        return client.machines.list()


def _api(chosen: Access) -> Outrider:
    return Outrider(chosen.url, chosen.key, timeout=STEP_SECONDS, max_retries=0)


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
        return _Answer(response.status_code, response.headers, body, certificate, time.time())


def _described(facts: ServiceFacts, answer: _Answer) -> ServiceFacts:
    """Return the facts with those of an answer to `GET /openapi.json`."""
    location = answer.headers.get("location") if 300 <= answer.status < 400 else None
    expires = (answer.certificate or {}).get("notAfter")
    left = None if expires is None else ssl.cert_time_to_seconds(expires) - answer.at
    offset = None
    with suppress(ValueError, KeyError):
        # The header has whole seconds: on average half a second is lost.
        date = parsedate_to_datetime(answer.headers["date"])
        offset = answer.at - (date.timestamp() + 0.5)
    return facts._replace(
        status=answer.status,
        location=None if location is None else printable(location)[:_REASON],
        version=_version(answer),
        certificate_seconds=left,
        clock_offset=offset,
    )


def _version(answer: _Answer) -> str | None:
    """Return the version in the description of the API; None if it is another one's."""
    info = _object(_object(_json(answer)).get("info"))
    is_ours = answer.status == 200 and info.get("title") == "Outrider"
    return printable(str(info.get("version")))[:_REASON] if is_ours else None


def _not_ready(answer: _Answer) -> str | None:
    if answer.status == 200:
        return None
    parts = _object(_json(answer))
    lacking = [
        f"{name} {text}" for name, text in parts.items() if text != "ok" and name != "status"
    ]
    return printable(", ".join(lacking) or f"status {answer.status}")[:_REASON]


def _json(answer: _Answer) -> Any:
    try:
        return msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, UnicodeError):
        return None


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _failure(error: Exception, *, is_proxied: bool) -> tuple[Failure, str]:
    """Return why a request failed, and the words for it."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            if cause.verify_code in _EXPIRED:
                return Failure.TLS_EXPIRED, cause.verify_message
            is_name = cause.verify_code in _NAME_MISMATCH
            return Failure.TLS_NAME if is_name else Failure.TLS_ISSUER, cause.verify_message
        if isinstance(cause, ssl.SSLError):
            return Failure.TLS, cause.reason or str(cause)
        if isinstance(cause, socket.gaierror):
            return Failure.NAME, cause.strerror or str(cause)
    reason = str(error) or type(error).__name__
    if isinstance(error, httpx2.TimeoutException):
        return Failure.TIMEOUT, "not in time"
    if is_proxied or isinstance(error, httpx2.ProxyError):
        return Failure.PROXY, reason
    if isinstance(error, httpx2.InvalidURL | UnicodeError | httpx2.UnsupportedProtocol):
        return Failure.ADDRESS, "this is not an http address"
    return Failure.CONNECT, reason


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
