"""Every finding about the service, the key and the machine's connection, one by one."""

from typing import Any

import pytest

from outrider.cli.doctor.finding import Status
from outrider.cli.doctor.service_checks import (
    Failure,
    KeyFacts,
    MachineFacts,
    ServiceFacts,
    check_certificate,
    check_clock,
    check_key,
    check_machine,
    check_service,
    check_versions,
    is_loopback_url,
)
from tests.cli.doctor.test_local_checks import assert_says

DAY = 86400.0
LOCAL = ServiceFacts("http://127.0.0.1:8400", is_loopback=True, status=200, version="1.0")
REMOTE = LOCAL._replace(url="https://o.example.org", is_loopback=False)


@pytest.mark.parametrize("failure", Failure)
def test_no_answer(failure: Failure) -> None:
    facts = REMOTE._replace(failure=failure, reason="the reason", version=None)
    assert_says(check_service(facts), Status.FAILED, "o.example.org", "the reason")


@pytest.mark.parametrize(
    ("facts", "changes", "status", "words"),
    [
        (LOCAL, {}, Status.OK, ["http://127.0.0.1:8400"]),
        (REMOTE, {"proxy": "http://proxy:3128"}, Status.OK, ["http://proxy:3128"]),
        (LOCAL, {"failure": Failure.CONNECT}, Status.FAILED, ["outrider up", "outrider login"]),
        (LOCAL, {"failure": Failure.PROXY, "proxy": "p:1"}, Status.FAILED, ["NO_PROXY", "p:1"]),
        (REMOTE, {"failure": Failure.TLS_ISSUER}, Status.FAILED, ["SSL_CERT_FILE"]),
        (REMOTE, {"failure": Failure.TLS_EXPIRED}, Status.FAILED, ["Renew"]),
        (REMOTE, {"version": None, "status": 421}, Status.FAILED, ["OUTRIDER_ALLOWED_HOSTS"]),
        (REMOTE, {"version": None, "location": "https://b"}, Status.FAILED, ["to https://b"]),
        (REMOTE, {"version": None}, Status.FAILED, ["not Outrider", "OUTRIDER_URL"]),
        (REMOTE, {"not_ready": "database down"}, Status.FAILED, ["database down"]),
    ],
)
def test_the_service(
    facts: ServiceFacts, changes: dict[str, Any], status: Status, words: list[str]
) -> None:
    assert_says(check_service(facts._replace(**changes)), status, *words)


def test_the_certificate() -> None:
    assert_says(check_certificate(LOCAL), Status.OK)
    assert_says(check_certificate(REMOTE), Status.SKIPPED, "service")
    assert_says(check_certificate(REMOTE._replace(certificate_seconds=90 * DAY)), Status.OK, "90")
    soon = check_certificate(REMOTE._replace(certificate_seconds=3.5 * DAY))
    assert_says(soon, Status.WARNING, "3 days", "Renew")
    open_text = check_certificate(REMOTE._replace(url="http://o.example.org"))
    assert_says(open_text, Status.WARNING, "not encrypted", "https")


def test_the_clock() -> None:
    assert_says(check_clock(LOCAL), Status.SKIPPED)
    assert_says(check_clock(LOCAL._replace(clock_offset=-3.0)), Status.OK)
    assert_says(check_clock(LOCAL._replace(clock_offset=90.0)), Status.FAILED, "90 s ahead")
    assert_says(check_clock(LOCAL._replace(clock_offset=-90.0)), Status.FAILED, "90 s behind")


def test_the_key() -> None:
    none = KeyFacts(None)
    nowhere = MachineFacts()
    assert_says(check_key(none, nowhere), Status.FAILED, "no API key", "outrider login")
    here = MachineFacts("machine_1", server="http://127.0.0.1:8400")
    assert_says(check_key(none, here), Status.FAILED, "no API key")
    agent_alone = MachineFacts("machine_1", server="https://outrider.example.org")
    assert_says(check_key(none, agent_alone), Status.OK, "machine agent needs none")
    unusable = none._replace(problem="The stored key is for another service")
    assert_says(check_key(unusable, agent_alone), Status.FAILED, "another service")
    kept = KeyFacts("client.json")
    assert_says(
        check_key(kept._replace(is_refused=True), nowhere), Status.FAILED, "client.json", "login"
    )
    assert_says(check_key(kept._replace(is_checked=False), nowhere), Status.SKIPPED)
    assert_says(check_key(kept._replace(problem="too many"), nowhere), Status.FAILED, "too many")
    assert_says(check_key(kept._replace(account_id="acct_1"), nowhere), Status.OK, "acct_1")


def test_versions() -> None:
    machine = MachineFacts("machine_1", version="1.0")
    assert_says(check_versions(LOCAL, machine, "1.0"), Status.OK, "the machine agent: 1.0")
    assert_says(check_versions(LOCAL, MachineFacts(), "1.0"), Status.OK)
    assert_says(check_versions(LOCAL._replace(version=None), machine, "1.0"), Status.SKIPPED)
    newer = check_versions(LOCAL, machine, "2.0")
    assert_says(newer, Status.WARNING, "2.0", "the service 1.0", "the machine agent 1.0")


def test_the_machine() -> None:
    enrolled = MachineFacts("machine_1", "laptop", "https://o.example.org")
    runs = enrolled._replace(process="77")
    here = runs._replace(listed=True, is_connected=True)
    for facts, status, words in (
        (MachineFacts(), Status.WARNING, ["not enrolled", "outrider setup"]),
        (MachineFacts(failure="it is damaged"), Status.FAILED, ["damaged", "outrider setup"]),
        (enrolled, Status.FAILED, ["laptop", "does not run", "outrider daemon"]),
        (runs, Status.OK, ["77"]),
        (here, Status.OK, ["77", "connected"]),
        (here._replace(is_connected=False), Status.FAILED, ["no connection", "restart"]),
        (runs._replace(listed=False), Status.WARNING, ["account", "https://o.example.org"]),
    ):
        assert_says(check_machine(facts, LOCAL), status, *words)


def test_what_is_on_this_machine() -> None:
    assert is_loopback_url("http://localhost:1")
    assert not is_loopback_url("https://o.example.org")
    assert not is_loopback_url("http://[")
