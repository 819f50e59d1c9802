"""The rate limits: how many, in which window, of whom, and what the headers tell."""

import asyncio
import ipaddress
import re
from collections import Counter

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from starlette.types import Scope

from outrider.service.accounts.rate_limits import MemoryWindows, RateLimited, RateLimits
from outrider.service.http.client_address import Addresses, network_of
from outrider.service.settings import Settings
from tests.conftest import StartSite
from tests.rig.clock import Clock
from tests.rig.errors import assert_error
from tests.rig.people import PASSWORD, V1, dashboard, logged_in, page_headers, person

pytestmark = pytest.mark.asyncio(loop_scope="session")

# draft-ietf-httpapi-ratelimit-headers: lists (RFC 9651) of strings with integer parameters.
_ITEM = re.compile(
    r'"(?P<name>[\x20-\x21\x23-\x5b\x5d-\x7e]+)"(?P<parameters>(;[a-z]+=-?\d{1,15})*)'
)


def structured(header: str) -> dict[str, dict[str, int]]:
    """Parse a list of strings with integer parameters; fail where it is not one."""
    found = {}
    for part in re.split(r"[ \t]*,[ \t]*", header):
        item = _ITEM.fullmatch(part)
        assert item is not None, f"{part!r} is not an item"
        pairs = [pair.split("=") for pair in item["parameters"].split(";")[1:]]
        found[item["name"]] = {name: int(value) for name, value in pairs}
    return found


def limits(response: httpx.Response) -> dict[str, tuple[int, int, int]]:
    """Return of each limit that a response tells of: quota, window, remaining."""
    policy = structured(response.headers["ratelimit-policy"])
    state = structured(response.headers["ratelimit"])
    assert policy.keys() == state.keys()
    for name, parameters in state.items():
        assert parameters.keys() == {"r", "t"}
        assert 1 <= parameters["t"] <= policy[name]["w"] + 1
    return {name: (policy[name]["q"], policy[name]["w"], state[name]["r"]) for name in policy}


class TestHeaders:
    async def test_every_limited_response_has_them(self, start_site: StartSite) -> None:
        """docs/access.md, Limits: RateLimit-Policy and RateLimit."""
        owner = await person(
            await start_site(rate_limit_ip=100, rate_limit_key=50, rate_limit_session=20)
        )
        page = await dashboard(owner)
        listed = await owner.api.get(f"{V1}/daemons")
        assert limits(listed) == {"ip": (100, 60, 99), "key": (50, 60, 49)}
        missing = await owner.api.get(f"{V1}/daemons/machine_x/status")
        assert limits(missing) == {"ip": (100, 60, 98), "key": (50, 60, 48)}
        assert limits(await page.get(f"{V1}/daemons")) == {"session": (20, 60, 19)}
        assert limits(await page.get(f"{V1}/nothing")) == {"session": (20, 60, 18)}
        stranger = owner.site.client()
        assert limits(await stranger.get(f"{V1}/daemons")) == {"ip": (100, 60, 97)}
        assert limits(await stranger.get(f"{V1}/nothing")) == {"ip": (100, 60, 96)}
        assert limits(await stranger.put(f"{V1}/daemons")) == {"ip": (100, 60, 95)}

    async def test_a_refusal_tells_when_to_come_back(self, start_site: StartSite) -> None:
        """docs/access.md, Limits: 429 adds Retry-After in whole seconds."""
        stranger = (await start_site(rate_limit_ip=1)).client()
        await stranger.get(f"{V1}/daemons")
        for path in ("/daemons", "/nothing"):
            refused = await stranger.get(V1 + path)
            assert_error(refused, 429, "RATE_LIMITED")
            assert limits(refused)["ip"] == (1, 60, 0)
            assert re.fullmatch(r"[1-9]\d*", refused.headers["retry-after"])
            assert int(refused.headers["retry-after"]) <= 61

    async def test_what_is_outside_the_api_is_not_limited(self, start_site: StartSite) -> None:
        """Not those for static files, health and the daemon's WebSocket."""
        site = await start_site(rate_limit_ip=1)
        owner = await person(site)
        for _ in range(3):
            response = await site.client().get("/healthz")
            assert response.status_code == 200
            assert "ratelimit" not in response.headers
        await owner.machine()
        await owner.machine()


class TestCounting:
    async def test_exactly_as_many_as_allowed_of_fifty_at_once(self, start_site: StartSite) -> None:
        site = await start_site(rate_limit_key=30, rate_limit_ip=1000)
        owner = await person(site)
        answers = await asyncio.gather(*(owner.api.get(f"{V1}/daemons") for _ in range(50)))
        assert Counter(answer.status_code for answer in answers) == {200: 30, 429: 20}
        other = site.client(await site.key(owner.id))
        assert (await other.get(f"{V1}/daemons")).status_code == 200, "each key has its own"

    async def test_exactly_as_many_of_an_address(self, start_site: StartSite) -> None:
        owner = await person(await start_site(rate_limit_ip=20))
        answers = await asyncio.gather(*(owner.api.get(f"{V1}/daemons") for _ in range(50)))
        assert Counter(answer.status_code for answer in answers) == {200: 20, 429: 30}

    async def test_a_refusal_says_which_limit_it_was_and_what_raises_it(
        self, start_site: StartSite
    ) -> None:
        site = await start_site(rate_limit_ip=3, rate_limit_key=5, rate_limit_session=2)
        owner = await person(site)
        for client, allowed, subject, setting in (
            (owner.api, 3, "this address", "OUTRIDER_RATE_LIMIT_IP"),
            (await dashboard(owner), 2, "this session", "OUTRIDER_RATE_LIMIT_SESSION"),
        ):
            for _ in range(allowed):
                assert (await client.get(f"{V1}/daemons")).status_code == 200
            refused = await client.get(f"{V1}/daemons")
            sentence = assert_error(refused, 429, "RATE_LIMITED")["error"]
            assert subject in sentence
            assert sentence.endswith(f"with {setting}")

    async def test_a_session_counts_for_itself_and_not_for_its_address(
        self, start_site: StartSite
    ) -> None:
        """docs/access.md, Limits."""
        site = await start_site(rate_limit_ip=1, rate_limit_session=10, rate_limit_key=100)
        owner = await person(site)
        first, second = await dashboard(owner), await dashboard(owner)
        assert (await owner.api.get(f"{V1}/daemons")).status_code == 200
        assert_error(await owner.api.get(f"{V1}/daemons"), 429, "RATE_LIMITED")
        for page in (first, second):
            answers = [await page.get(f"{V1}/daemons") for _ in range(11)]
            assert [answer.status_code for answer in answers] == [200] * 10 + [429]
            assert limits(answers[-1]) == {"session": (10, 60, 0)}

    async def test_the_cookie_counts_for_its_session_too(self, start_site: StartSite) -> None:
        site = await start_site(rate_limit_ip=1, rate_limit_session=5)
        headers = await page_headers(await person(site))
        answer = await site.client().get(f"{V1}/daemons", headers=headers)
        assert limits(answer) == {"session": (5, 60, 4)}

    async def test_an_ended_session_counts_for_its_address(self, start_site: StartSite) -> None:
        """And for itself: the database is not asked as often as one likes whether it lives."""
        site = await start_site(rate_limit_ip=3, rate_limit_session=9, rate_limit_auth=100)
        owner = await person(site)
        page = await dashboard(owner)
        assert (await page.post(f"{V1}/auth/logout")).status_code == 200
        for left in (2, 1, 0):
            refused = await page.get(f"{V1}/daemons")
            assert_error(refused, 401, "AUTH_INVALID")
            assert limits(refused)["ip"] == (3, 60, left)
        answers = [await page.get(f"{V1}/daemons") for _ in range(10)]
        for refused in answers:
            assert_error(refused, 429, "RATE_LIMITED")
        assert limits(answers[0]).keys() == {"session", "ip"}
        assert limits(answers[-1]) == {"session": (9, 60, 0)}

    async def test_a_forged_session_counts_for_its_address(self, start_site: StartSite) -> None:
        site = await start_site(rate_limit_ip=2, rate_limit_session=9)
        token = (await logged_in(await person(site))).token
        forger = site.client(token[:-6] + "AAAAAA")
        for _ in range(2):
            assert_error(await forger.get(f"{V1}/daemons"), 401, "AUTH_INVALID")
        assert_error(await forger.get(f"{V1}/daemons"), 429, "RATE_LIMITED")
        assert (await site.client(token).get(f"{V1}/daemons")).status_code == 200

    async def test_routes_that_take_credentials(self, start_site: StartSite) -> None:
        """docs/access.md, Limits: 10 in 5 minutes on every /auth route, with enrollment."""
        site = await start_site(rate_limit_auth=10)
        stranger = site.client()
        for number in range(10):
            path, body = [
                ("login", {"email": "a@b", "password": "x"}),
                ("enroll", {"code": "x", "hostname": "h", "platform": "p"}),
                ("device", {"hostname": "h", "platform": "p"}),
                ("device/token", {"deviceCode": "not one of ours"}),
                ("login", "not JSON"),
            ][number % 5]
            answer = await stranger.post(f"{V1}/auth/{path}", json=body)
            assert answer.status_code in {200, 400, 401}, answer.text
            assert limits(answer)["auth"][:2] == (10, 300)
        for path in ("login", "enroll", "device", "device/token"):
            refused = await stranger.post(f"{V1}/auth/{path}", json={})
            assert_error(refused, 429, "RATE_LIMITED")
            assert limits(refused)["auth"] == (10, 300, 0)
        owner = await person(site)
        page = await dashboard(owner)
        refused = await page.post(f"{V1}/auth/reauthenticate", json={"password": PASSWORD})
        assert_error(refused, 429, "RATE_LIMITED")
        assert (await page.get(f"{V1}/daemons")).status_code == 200, "other routes are free"

    async def test_a_machine_that_polls_does_not_use_up_the_tries(
        self, start_site: StartSite
    ) -> None:
        site = await start_site(rate_limit_auth=3)
        stranger = site.client()
        device = await stranger.post(f"{V1}/auth/device", json={"hostname": "h", "platform": "p"})
        body = {"deviceCode": device.json()["deviceCode"]}
        for _ in range(10):
            assert (await stranger.post(f"{V1}/auth/device/token", json=body)).status_code == 400
        assert limits(await stranger.post(f"{V1}/auth/device", json={}))["auth"] == (3, 300, 1)


class TestWindow:
    async def test_it_slides(self, clock: Clock) -> None:
        clock.now = 6000.0
        rates = RateLimits(key=60, ip=10, auth=10, clock=clock)
        for _ in range(10):
            await rates.hit("ip", "a")
        for _ in range(3):
            with pytest.raises(RateLimited):
                await rates.hit("ip", "a")
        await rates.hit("ip", "b")
        clock.now = 6060.0 + 30  # half of the old window still counts
        admitted = 0
        for _ in range(10):
            try:
                await rates.hit("ip", "a")
                admitted += 1
            except RateLimited:
                pass
        assert admitted == 5
        clock.now = 6240.0
        assert (await rates.hit("ip", "a")).remaining == 9

    async def test_a_clock_that_is_set_back_locks_nobody_out(self, clock: Clock) -> None:
        rates = RateLimits(key=1, ip=1, auth=1, clock=clock)
        await rates.hit("ip", "a")
        clock.passes(-3600)
        await rates.hit("ip", "a")
        with pytest.raises(RateLimited) as refused:
            await rates.hit("ip", "a")
        clock.passes(refused.value.retry_after or 0)
        await rates.hit("ip", "a")

    async def test_a_check_counts_nothing(self, clock: Clock) -> None:
        rates = RateLimits(key=1, ip=1, auth=2, clock=clock)
        for _ in range(5):
            assert (await rates.check("auth", "a")).remaining == 2
        await rates.hit("auth", "a")
        await rates.hit("auth", "a")
        with pytest.raises(RateLimited):
            await rates.check("auth", "a")


@given(
    limit=st.integers(1, 20),
    waits=st.lists(st.floats(0, 40).map(lambda wait: round(wait, 1)), max_size=60),
)
@settings(max_examples=60, deadline=None)
async def test_whoever_waits_as_told_is_admitted(limit: int, waits: list[float]) -> None:
    """Retry-After is true: not too early, whatever was done before."""
    clock = Clock(6_000.0)
    rates = RateLimits(key=1, ip=limit, auth=1, clock=clock)
    for wait in [*waits, *[0.0] * limit]:
        clock.passes(wait)
        try:
            await rates.hit("ip", "a")
        except RateLimited as refused:
            clock.passes(refused.retry_after or 0)
            await rates.hit("ip", "a")


class TestMemory:
    async def test_it_is_bounded_when_many_addresses_knock(self, clock: Clock) -> None:
        storage = MemoryWindows(maximum=1000, clock=clock)
        for number in range(20_000):
            storage.hit(f"address {number}", 60, 60, 1)
            assert len(storage) <= 1000
        hit = storage.hit("address 19999", 60, 60, 0)
        assert hit == pytest.approx((True, 1, 0, 60 - clock.now % 60))

    async def test_whoever_keeps_knocking_is_not_forgotten(self, clock: Clock) -> None:
        storage = MemoryWindows(maximum=100, clock=clock)
        for number in range(1000):
            storage.hit(f"address {number}", 60, 60, 1)
            storage.hit("busy", 50, 60, 1)
        is_admitted, *_ = storage.hit("busy", 50, 60, 1)
        assert not is_admitted


def request(peer: str, *forwarded: str, **headers: str) -> Scope:
    named = [(b"x-forwarded-for", value.encode()) for value in forwarded]
    named += [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]
    return {"type": "http", "client": (peer, 1234), "headers": named, "scheme": "http"}


def behind(*networks: str) -> Addresses:
    return Addresses([ipaddress.ip_network(network) for network in networks])


class TestAddresses:
    @pytest.mark.parametrize(
        ("trusted", "peer", "forwarded", "client"),
        [
            ([], "192.0.2.1", ["203.0.113.9"], "192.0.2.1"),
            (["10.0.0.0/8"], "192.0.2.1", ["203.0.113.9"], "192.0.2.1"),
            (["10.0.0.0/8"], "10.0.0.1", [], "10.0.0.1"),
            (["10.0.0.0/8"], "10.0.0.1", ["203.0.113.9"], "203.0.113.9"),
            # What stands in front of the last stranger is that stranger's own word.
            (["10.0.0.0/8"], "10.0.0.1", ["198.51.100.7, 203.0.113.9"], "203.0.113.9"),
            (["10.0.0.0/8"], "10.0.0.1", ["198.51.100.7", "203.0.113.9, 10.0.0.2"], "203.0.113.9"),
            (["10.0.0.0/8"], "10.0.0.1", ["rubbish, 203.0.113.9"], "203.0.113.9"),
            # Rubbish from a trusted proxy: the proxy itself is counted.
            (["10.0.0.0/8"], "10.0.0.1", ["203.0.113.9, rubbish"], "10.0.0.1"),
            (["10.0.0.0/8"], "10.0.0.1", [""], "10.0.0.1"),
            (["10.0.0.0/8"], "10.0.0.1", ["203.0.113.9:4711"], "10.0.0.1"),
            # All of them trusted: the farthest.
            (["10.0.0.0/8"], "10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
            # A service that listens on IPv6 sees IPv4 proxies as mapped addresses.
            (["10.0.0.0/8"], "::ffff:10.0.0.1", ["203.0.113.9"], "203.0.113.9"),
            (["10.0.0.0/8"], "10.0.0.1", ["::ffff:203.0.113.9"], "203.0.113.9"),
            (["fd00::/8"], "fd00::1", ["[2001:db8::1]"], "2001:db8::1"),
            (["fd00::/8"], "fd00::1", ["2001:DB8:0::1%eth0"], "2001:db8::1"),
            ([], "::ffff:192.0.2.1", [], "192.0.2.1"),
        ],
    )
    async def test_whom_to_believe(
        self, trusted: list[str], peer: str, forwarded: list[str], client: str
    ) -> None:
        assert behind(*trusted).client(request(peer, *forwarded)) == client

    async def test_https_is_what_a_trusted_proxy_says(self) -> None:
        https = {"x_forwarded_proto": "https"}
        assert behind("10.0.0.0/8").is_https(request("10.0.0.1", **https))
        assert not behind("10.0.0.0/8").is_https(request("192.0.2.1", **https))
        assert not behind().is_https(request("10.0.0.1", **https))
        assert not behind("10.0.0.0/8").is_https(request("10.0.0.1", x_forwarded_proto="http"))

    async def test_who_is_counted_together(self) -> None:
        """docs/access.md, Limits: IPv6 by /64; IPv4 by address, mapped or not."""
        assert network_of("2001:db8:1:2:3:4:5:6") == "2001:db8:1:2::/64"
        assert network_of("2001:db8:1:2::1") == "2001:db8:1:2::/64"
        assert network_of("2001:db8:1:3::1") != network_of("2001:db8:1:2::1")
        assert network_of("::ffff:192.0.2.1") == network_of("192.0.2.1") == "192.0.2.1"
        assert network_of("192.0.2.2") != network_of("192.0.2.1")
        assert network_of("fe80::1%eth0") == network_of("fe80::2%eth1")
        assert network_of("") == ""

    @pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
    async def test_loopback_is_counted_unless_told_otherwise(self, address: str) -> None:
        assert Addresses([]).counted_as(address) == network_of(address)
        assert Addresses([], limit_loopback=False).counted_as(address) is None

    @pytest.mark.parametrize("address", ["192.0.2.1", "10.0.0.1", "::", "fe80::1", "", "rubbish"])
    async def test_any_other_address_is_counted(self, address: str) -> None:
        assert Addresses([], limit_loopback=False).counted_as(address) == network_of(address)

    async def test_the_service_believes_whom_it_is_told_to(self, start_site: StartSite) -> None:
        trusting = await start_site(rate_limit_ip=1, trusted_proxies="127.0.0.0/8")
        for number in range(3):
            headers = {"X-Forwarded-For": f"198.51.100.9, 203.0.113.{number}"}
            first = await trusting.client().get(f"{V1}/daemons", headers=headers)
            assert_error(first, 401, "AUTH_REQUIRED")
            headers = {"X-Forwarded-For": f"198.51.100.8, 203.0.113.{number}"}
            again = await trusting.client().get(f"{V1}/daemons", headers=headers)
            assert_error(again, 429, "RATE_LIMITED")
        wary = await start_site(rate_limit_ip=1)
        answers = [
            await wary.client().get(f"{V1}/daemons", headers={"X-Forwarded-For": f"203.0.113.{n}"})
            for n in range(2)
        ]
        assert [answer.status_code for answer in answers] == [401, 429]


class TestSettings:
    @pytest.mark.parametrize(
        ("text", "networks"),
        [
            ("", []),
            ("10.0.0.1", ["10.0.0.1/32"]),
            ("10.0.0.0/8, fd00::/8 ,", ["10.0.0.0/8", "fd00::/8"]),
        ],
    )
    async def test_trusted_proxies(
        self, monkeypatch: pytest.MonkeyPatch, text: str, networks: list[str]
    ) -> None:
        monkeypatch.setenv("OUTRIDER_TRUSTED_PROXIES", text)
        assert [str(network) for network in Settings().trusted_proxies] == networks

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("TRUSTED_PROXIES", "proxy.example.org"),
            ("TRUSTED_PROXIES", "10.0.0.1/8"),
            ("RATE_LIMIT_IP", "0"),
            ("RATE_LIMIT_KEY", "many"),
            ("RATE_LIMIT_AUTH", "-1"),
            ("RECENT_LOGIN", "0"),
        ],
    )
    async def test_what_is_wrong_is_refused(
        self, monkeypatch: pytest.MonkeyPatch, name: str, value: str
    ) -> None:
        monkeypatch.setenv(f"OUTRIDER_{name}", value)
        with pytest.raises(ValidationError):
            Settings()


async def test_a_session_has_no_limit_of_a_key(start_site: StartSite) -> None:
    page = await dashboard(await person(await start_site(rate_limit_key=1)))
    for _ in range(3):
        assert (await page.get(f"{V1}/daemons")).status_code == 200
