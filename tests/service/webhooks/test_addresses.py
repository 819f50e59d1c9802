"""Where a webhook may not go. Holds docs/webhooks.md, "Limits"."""

import asyncio
import socket
import threading
from typing import Any

import pytest

from outrider.contract.errors import ApiError
from outrider.service.webhooks.addresses import RESOLVER_THREADS, AddressPolicy, HostResolver
from outrider.service.webhooks.resolver import PolicyResolver
from outrider.service.webhooks.retry_policy import Outcome
from outrider.service.webhooks.sender import Sender
from tests.rig.waiting import TIMEOUT, eventually
from tests.service.webhooks.receiver import Receiver, response

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.one_store]

# Loopback and private: refused unless the operator allows them.
PRIVATE = [
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "127.255.255.254",
    "2130706433",
    "0x7f000001",
    "0x7f.0.0.1",
    "0x7F.1",
    "017700000001",
    "0177.0.0.1",
    "0177.1",
    "0",
    "0.0.0.0",
    "0.1.2.3",
    "0x0",
    "10.0.0.1",
    "10.1",
    "10.255.255.255",
    "167772161",
    "0xa000001",
    "012.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.0.1",
    "192.168.257",
    "3232235521",
    "0xc0a80001",
    "100.64.0.1",
    "100.127.255.255",
    "192.0.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "198.51.100.7",
    "203.0.113.9",
    "240.0.0.1",
    "[::]",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::ffff:10.0.0.1]",
    "[::ffff:0:127.0.0.1]",
    "[::127.0.0.1]",
    "[::10.1.2.3]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b::10.0.0.1]",
    "[64:ff9b::c0a8:1]",
    "[2002:7f00:1::1]",
    "[2002:a00:1::]",
    "[2002:c0a8:101::1]",
    "[fc00::1]",
    "[fd12:3456:789a::1]",
    "[fec0::1]",
    "[2001:db8::1]",
    "[2001:0:a00:1:0:0:80ff:fffe]",
    "[2001:0:808:808:0:0:f5ff:fffe]",
    "[100::1]",
    "[fe80::5efe:10.0.0.1]",
]

# Link-local, multicast and metadata addresses: refused whatever the operator allows.
FORBIDDEN = [
    "169.254.169.254",
    "169.254.1.1",
    "169.254.170.2",
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "169.254.43518",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "224.0.0.1",
    "239.255.255.255",
    "255.255.255.255",
    "4294967295",
    "[fe80::1]",
    "[fe80::1%25lo]",
    "[ff02::1]",
    "[ff0e::1]",
    "[fd00:ec2::254]",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[::ffff:0:169.254.169.254]",
    "[::169.254.169.254]",
    "[64:ff9b::169.254.169.254]",
    "[64:ff9b::a9fe:a9fe]",
    "[64:ff9b:1::169.254.169.254]",
    "[64:ff9b:1:a9fe:a9:fe00::]",
    "[64:ff9b:1::808:808]",
    "[2002:a9fe:a9fe::1]",
    "[2002:e000:1::]",
    "[2001:0:a9fe:a9fe:0:0:f7f7:f7f7]",
    "[2001:0:808:808:0:0:5601:5601]",
    "[2606:4700::5efe:169.254.169.254]",
    "[2606:4700::200:5efe:a9fe:a9fe]",
]

PUBLIC = [
    "8.8.8.8",
    "1.1.1.1",
    "134744072",
    "0x08080808",
    "010.010.010.010",
    "172.15.255.255",
    "172.32.0.1",
    "192.167.0.1",
    "100.63.255.255",
    "100.128.0.1",
    "169.253.255.255",
    "223.255.255.255",
    "[2606:4700:4700::1111]",
    "[2001:4860:4860::8888]",
    "[::ffff:8.8.8.8]",
    "[64:ff9b::8.8.8.8]",
    "[2002:808:808::1]",
]


async def test_the_tables_are_long_enough() -> None:
    assert len(set(PRIVATE + FORBIDDEN)) >= 60


async def refused(host: str, *, allow_private: bool) -> bool:
    """Return whether a webhook to this host cannot be made."""
    try:
        await AddressPolicy(allow_private=allow_private).check_url(f"http://{host}:8080/hook")
    except ApiError as error:
        return error.status == 400 and error.details[0].path == "url"
    return False


@pytest.mark.parametrize("host", PRIVATE)
async def test_private_addresses(host: str) -> None:
    assert await refused(host, allow_private=False)
    if "5efe" not in host:  # that one is link-local as well
        assert not await refused(host, allow_private=True)


@pytest.mark.parametrize("host", FORBIDDEN)
async def test_forbidden_addresses(host: str) -> None:
    assert await refused(host, allow_private=False)
    assert await refused(host, allow_private=True)


@pytest.mark.parametrize("host", PUBLIC)
async def test_public_addresses(host: str) -> None:
    assert not await refused(host, allow_private=False)
    assert not await refused(host, allow_private=True)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "//example.org/hook",
        "example.org/hook",
        "http://",
        "http:///hook",
        "http://:80/",
        "https://user@example.org/",
        "https://user:pass@example.org/",
        "https://:pass@example.org/",
        "http://example.org:99999/",
        "http://example.org:0/",
        "http://[::1",
        "http://exa mple.org/",
        "http://example.org\t/",
        "",
    ],
)
async def test_what_is_not_a_url_of_a_receiver(url: str) -> None:
    with pytest.raises(ApiError) as refusal:
        await AddressPolicy(allow_private=True).check_url(url)
    assert refusal.value.status == 400


class Names:
    """Stands in for the name server: what each name's next answers are."""

    def __init__(self) -> None:
        self.answers: dict[str, list[list[str]]] = {}
        self.asked: list[str] = []

    def say(self, name: str, *answers: list[str]) -> None:
        """Give these answers for a name, one after the other; the last one stays."""
        self.answers[name] = list(answers)

    def getaddrinfo(self, host: Any, port: Any, *_: Any, **__: Any) -> list[Any]:
        """Answer as `socket.getaddrinfo` does, no host outside this table being asked for."""
        name = host.decode() if isinstance(host, bytes) else str(host)
        self.asked.append(name)
        answers = self.answers.get(name)
        if not answers:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        addresses = answers.pop(0) if len(answers) > 1 else answers[0]
        return [
            (
                (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (address, port, 0, 0))
                if ":" in address
                else (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            )
            for address in addresses
        ]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    table = Names()
    monkeypatch.setattr(socket, "getaddrinfo", table.getaddrinfo)
    return table


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.1.2.3", "::1", "169.254.169.254", "::ffff:192.168.1.1"]
)
async def test_names_of_private_addresses(names: Names, address: str) -> None:
    names.say("inner.example.org", [address])
    assert await refused("inner.example.org", allow_private=False)


async def test_a_name_of_a_public_address(names: Names) -> None:
    names.say("hooks.example.org", ["203.0.112.1", "2606:4700::1"])
    assert not await refused("hooks.example.org", allow_private=False)


async def test_a_name_that_does_not_resolve_yet_is_let_pass(names: Names) -> None:
    assert not await refused("later.example.org", allow_private=False)


class TestAttempts:
    """The check that counts: at each attempt, on what is connected to."""

    async def attempt(self, url: str, *, allow_private: bool = False) -> Outcome:
        sender = Sender(AddressPolicy(allow_private=allow_private), timeout=3)
        try:
            return await sender.attempt(
                url=url, secrets=["s"], event="e", delivery="d", number=1, body=b"{}"
            )
        finally:
            await sender.close()

    @pytest.mark.parametrize("host", ["127.0.0.1", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"])
    async def test_an_address(self, receiver: Receiver, host: str) -> None:
        port = receiver.url.split(":")[2]
        outcome = await self.attempt(f"http://{host}:{port}")
        assert outcome.status is None
        assert outcome.error is not None
        assert outcome.error.startswith("The receiver could not be reached: ")
        assert receiver.requests == []

    async def test_private_ones_where_the_operator_allows_them(self, receiver: Receiver) -> None:
        assert (await self.attempt(receiver.url, allow_private=True)).delivered
        await receiver.wait_for(1)

    async def test_an_answer_that_changes_between_check_and_connect(
        self, names: Names, receiver: Receiver
    ) -> None:
        """DNS rebinding: public when the webhook is made, private when it is called."""
        port = receiver.url.split(":")[2].split("/")[0]
        names.say("rebind.example.org", ["203.0.112.1"], ["127.0.0.1"])
        assert not await refused("rebind.example.org", allow_private=False)
        outcome = await self.attempt(f"http://rebind.example.org:{port}/")
        assert outcome.status is None
        assert outcome.error is not None
        assert "no address that webhooks may be sent to" in outcome.error
        assert receiver.requests == []

    async def test_one_question_for_each_attempt(self, names: Names, receiver: Receiver) -> None:
        """What is connected to is what was checked: a second answer is never asked for."""
        port = receiver.url.split(":")[2].split("/")[0]
        names.say("once.example.org", ["127.0.0.1"], ["169.254.169.254"])
        outcome = await self.attempt(f"http://once.example.org:{port}/", allow_private=True)
        assert outcome.delivered
        assert names.asked == ["once.example.org"]

    async def test_of_several_addresses_only_those_allowed(
        self, names: Names, receiver: Receiver
    ) -> None:
        port = receiver.url.split(":")[2].split("/")[0]
        names.say("mixed.example.org", ["169.254.169.254", "127.0.0.1"])
        outcome = await self.attempt(f"http://mixed.example.org:{port}/", allow_private=True)
        assert outcome.delivered

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    async def test_redirects_are_not_followed(self, receiver: Receiver, status: int) -> None:
        receiver.respond_with(response(status, Location=receiver.url + "/inner"))
        outcome = await self.attempt(receiver.url, allow_private=True)
        assert (outcome.status, outcome.delivered) == (status, False)
        assert [request.path for request in receiver.requests] == ["/hook"]

    async def test_the_socket_is_checked_too(
        self, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Even with a resolver that lets everything through."""

        async def resolve(*_: Any, **__: Any) -> Any:
            return [
                {
                    "hostname": "x",
                    "host": "127.0.0.1",
                    "port": int(receiver.url.split(":")[2].split("/")[0]),
                    "family": socket.AF_INET,
                    "proto": 0,
                    "flags": socket.AI_NUMERICHOST,
                }
            ]

        monkeypatch.setattr(PolicyResolver, "resolve", resolve)
        outcome = await self.attempt("http://anything.example.org/")
        assert outcome.status is None
        assert receiver.requests == []


async def test_any_number_of_names_that_take_long_hold_up_no_other_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Threads are reserved for names whose last look-up was prompt."""
    release = threading.Event()
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, *args: Any, **more: Any) -> Any:
        if str(host).startswith("slow"):
            release.wait(TIMEOUT)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure")
        return real("127.0.0.1", *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    resolver = HostResolver()
    assert await resolver.addresses("known.example.org", 80)
    slow = [
        asyncio.create_task(resolver.addresses(f"slow{number}.example.org", 80))
        for number in range(2 * RESOLVER_THREADS + 1)
    ]
    try:
        await asyncio.sleep(0)  # all of them begin
        async with asyncio.timeout(TIMEOUT / 2):
            assert await resolver.addresses("known.example.org", 80)
        assert not any(lookup.done() for lookup in slow)
    finally:
        release.set()
        outcomes = await asyncio.gather(*slow, return_exceptions=True)
        resolver.close()
    assert all(isinstance(outcome, socket.gaierror) for outcome in outcomes)


async def test_names_that_take_long_hold_up_nobody_else(
    monkeypatch: pytest.MonkeyPatch, receiver: Receiver
) -> None:
    """However many attempts wait for a slow name server, other names are looked up."""
    release = threading.Event()
    asked: list[str] = []
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, *args: Any, **more: Any) -> Any:
        asked.append(str(host))
        if host == "slow.example.org":
            release.wait(TIMEOUT)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure")
        return real("127.0.0.1", *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    sender = Sender(AddressPolicy(allow_private=True), timeout=TIMEOUT)

    async def attempt(host: str) -> Outcome:
        port = receiver.url.split(":")[2]
        return await sender.attempt(
            url=f"http://{host}:{port}", secrets=["s"], event="e", delivery="d", number=1, body=b""
        )

    slow = [asyncio.create_task(attempt("slow.example.org")) for _ in range(100)]
    try:
        await eventually(lambda: "slow.example.org" in asked)
        assert not release.is_set()
        async with asyncio.timeout(TIMEOUT / 2):
            assert (await attempt("quick.example.org")).delivered
    finally:
        release.set()
        outcomes = await asyncio.gather(*slow)
        await sender.close()
    assert not any(outcome.delivered for outcome in outcomes)
    assert asked.count("slow.example.org") == 1
