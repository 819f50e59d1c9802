"""Two nodes behind each real proxy, with its configuration in deploy/ and https."""

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

import httpx
import pytest
import pytest_asyncio

from outrider.contract.frames import Event
from outrider.service.http.request_body import MAX_BODY_BYTES
from tests.conftest import settings
from tests.deploy.proxies import Caddy, DockerHAProxy, HAProxy, Nginx, Proxy, name_server
from tests.rig.certificates import Authority
from tests.rig.event_stream import PATH, event_stream
from tests.rig.machine import ScriptedMachine, hello
from tests.rig.people import PAGE_SECRET, PASSWORD
from tests.rig.private import private
from tests.rig.samples import session
from tests.rig.site import CHEAP_HASHER, GATEWAY, Owner, Site
from tests.rig.sockets import viewer
from tests.rig.stores import PostgreSQL
from tests.rig.terminals import ScriptedTerminals
from tests.rig.waiting import TIMEOUT, eventually
from tests.servers.server import free_port
from tests.service.webhooks.events import agent_event

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.faults]

HOSTS = ("127.0.0.2", "127.0.0.3")
TRIES = 10
ADDRESS = "127.0.0.9"
PUBLIC_NAME = "outrider.example.com"


@dataclass(frozen=True)
class Deployment:
    """Two nodes, the proxy before them, and an account whose client goes through the proxy."""

    nodes: list[Site]
    proxy: Proxy
    trusted: ssl.SSLContext
    owner: Owner
    client: httpx.AsyncClient

    @property
    def sockets(self) -> str:
        """The address of WebSockets."""
        return self.proxy.url.replace("http", "ws")

    def stranger(self, address: str = "127.0.0.1") -> httpx.AsyncClient:
        """Return a client without a credential, which connects from this address."""
        transport = httpx.AsyncHTTPTransport(verify=self.trusted, local_address=address)
        return httpx.AsyncClient(base_url=self.proxy.url, transport=transport, timeout=TIMEOUT)

    async def machine(self) -> ScriptedMachine:
        """Connect a machine through the proxy; it answers every command and runs one agent."""
        enrolled = await self.owner.enrolls()
        machine = ScriptedMachine(
            self.sockets + GATEWAY, enrolled.token, hello(session(), terminals=True)
        )
        return (await self.owner.site.hold(machine)).obliges()


@pytest_asyncio.fixture(
    scope="module", loop_scope="session", params=["haproxy", "docker", "nginx", "caddy"]
)
async def deployment(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    postgresql: PostgreSQL,
) -> AsyncIterator[Deployment]:
    directory = tmp_path_factory.mktemp("deployment")
    port = free_port()
    common = settings(
        directory / "node0",
        postgresql,
        port=port,
        secret_key="k" * 32,
        drain_delay=3,
        rate_limit_auth=TRIES,
        trusted_proxies="127.0.0.1",
        public_url=f"https://{PUBLIC_NAME}",
    )
    async with AsyncExitStack() as held:
        nodes = []
        for number, host in enumerate(HOSTS):
            changes = {"host": host, "data_dir": directory / f"node{number}"}
            node = Site(common.model_copy(update=changes))
            await node.start()
            held.push_async_callback(node.close)
            nodes.append(node)
        authority = Authority(directory)
        # Machines and terminals connect with the system's authorities, which this replaces.
        patch = held.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("SSL_CERT_FILE", str(authority.file))
        resolver = await held.enter_async_context(name_server(HOSTS))
        certificate = authority.issue()[:2]
        addresses = [(host, port) for host in HOSTS]
        kinds: dict[str, Callable[[], Proxy]] = {
            "haproxy": lambda: HAProxy(addresses, certificate),
            "docker": lambda: DockerHAProxy(addresses, certificate, resolver),
            "nginx": lambda: Nginx(addresses, certificate),
            "caddy": lambda: Caddy(addresses, certificate),
        }
        proxy = private(kinds[request.param])
        await asyncio.to_thread(proxy.__enter__)
        held.push_async_callback(asyncio.to_thread, proxy.__exit__)
        owner = await nodes[0].account(password_hash=CHEAP_HASHER.hash(PASSWORD))
        client = await held.enter_async_context(
            httpx.AsyncClient(
                base_url=proxy.url,
                headers={"Authorization": f"Bearer {owner.key}"},
                verify=authority.context,
                trust_env=False,
                timeout=2 * TIMEOUT,
            )
        )

        async def ready() -> bool:
            return (await client.get("/readyz")).status_code == 200

        await eventually(ready)
        yield Deployment(nodes, proxy, authority.context, owner, client)


@pytest_asyncio.fixture(autouse=True, loop_scope="session")
async def visit(deployment: Deployment) -> AsyncIterator[None]:
    """Disconnect the machines of each test at its end."""
    async with deployment.owner.site.visit():
        yield


async def test_a_client_cannot_choose_the_address_that_it_counts_as(deployment: Deployment) -> None:
    statuses = Counter[int]()
    async with deployment.stranger() as stranger:
        for number in range(3 * TRIES):
            claims = {"X-Forwarded-For": f"198.51.100.{number}"}
            body = {"code": "wrong", "hostname": "h", "platform": "linux", "version": "1"}
            answer = await stranger.post("/api/v1/auth/enroll", json=body, headers=claims)
            statuses[answer.status_code] += 1
    assert statuses[429] > 0, statuses


async def test_the_service_sees_the_client_s_address_and_https(deployment: Deployment) -> None:
    machine = await deployment.machine()
    mine = {"Authorization": f"Bearer {deployment.owner.key}"}
    async with deployment.stranger(ADDRESS) as client:
        forged = {"X-Forwarded-For": "198.51.100.1", "X-Forwarded-Proto": "http"}
        path = f"/api/v1/daemons/{machine.id}/terminal"
        answer = await client.post(path, json={"command": "echo hi"}, headers=mine | forged)
        assert answer.status_code == 200, answer.text
        login = {"email": deployment.owner.email, "password": PASSWORD}
        client.headers["X-Outrider-Page-Secret"] = PAGE_SECRET
        answer = await client.post("/api/v1/auth/login", json=login, headers=forged)
        assert "; Secure" in answer.headers["set-cookie"]

        async def is_seen() -> bool:
            records = (await client.get("/api/v1/audit")).json()["records"]
            return [record["address"] for record in records if record["action"] == "terminal"] == [
                ADDRESS
            ]

        await eventually(is_seen)


async def test_a_wait_ends_with_what_it_waits_for(deployment: Deployment) -> None:
    machine = await deployment.machine()
    page = (await deployment.client.get(PATH, params={"limit": 500})).json()
    query = {"wait": 60, "after": page["cursor"], "events": "agent:*"}
    waiting = asyncio.create_task(deployment.client.get(PATH, params=query))
    event = agent_event()
    await machine.say(Event(seq=1, event=event))
    async with asyncio.timeout(TIMEOUT):
        events = (await waiting).json()["events"]
    assert [row["id"] for row in events] == [event.id]


async def test_an_event_arrives_while_the_stream_is_open(deployment: Deployment) -> None:
    machine = await deployment.machine()
    async with event_stream(deployment.client) as stream:
        assert stream.response.headers["content-type"] == "text/event-stream"
        await stream.until("stream:ready")
        event = agent_event()
        await machine.say(Event(seq=1, event=event))
        assert (await stream.until("agent:generating_started")).data["id"] == event.id


async def test_a_terminal_s_bytes_go_both_ways(deployment: Deployment) -> None:
    terminals = ScriptedTerminals(await deployment.machine())
    path = f"/api/v1/shortcuts/{terminals.machine.id}:session:session_1/terminal"
    opening = asyncio.create_task(terminals.opens())
    async with viewer(deployment.owner, path, origin=deployment.sockets) as socket:
        stream, _ = await opening
        await terminals.shows(stream, b"hi")
        async with asyncio.timeout(TIMEOUT):
            assert await socket.recv() == b"hi"
        await socket.send(b"ls\r")
        await eventually(lambda: terminals.typed[stream] == b"ls\r")


async def test_a_body_of_the_greatest_size_reaches_the_service(deployment: Deployment) -> None:
    # The proxies' own limits are 2 MB.
    for size in (MAX_BODY_BYTES - 1000, MAX_BODY_BYTES + 1000, 1_990_000):
        answer = await deployment.client.post(
            "/api/v1/daemons/machine_x/terminal", json={"command": "x" * size}
        )
        assert answer.json()["error"]
        assert (answer.status_code == 413) is (size > MAX_BODY_BYTES), answer.text


async def test_the_path_stays_as_it_is(deployment: Deployment) -> None:
    answer = await deployment.client.get("/outrider/api/v1/daemons")
    assert (answer.status_code, "error" in answer.json()) == (404, True)


async def test_the_metrics_are_not_served(deployment: Deployment) -> None:
    answer = await deployment.client.get("/metrics")
    assert answer.status_code == 404
    assert "outrider" not in answer.text


async def test_the_public_name_is_served_and_no_other(deployment: Deployment) -> None:
    for name, status in ((PUBLIC_NAME, 200), ("elsewhere.example.com", 421)):
        answer = await deployment.client.get("/api/v1/daemons", headers={"Host": name})
        assert answer.status_code == status, name


async def test_a_node_that_stops_fails_no_request(deployment: Deployment) -> None:
    machine = await deployment.machine()
    command = deployment.client.build_request(
        "POST", f"/api/v1/daemons/{machine.id}/terminal", json={"command": "echo hi"}
    )
    listing = deployment.client.build_request("GET", "/api/v1/daemons")
    # nginx does not ask whether a node is ready: what it sends in the instant in which the node
    # stops is lost, and it repeats a GET alone.
    request = listing if isinstance(deployment.proxy, Nginx) else command
    outcomes, stop = Counter[str](), asyncio.Event()

    async def load() -> None:
        while not stop.is_set():
            try:
                answer = await deployment.client.send(request)
            except httpx.TransportError as error:
                outcomes[repr(error)] += 1
            else:
                outcomes["done" if answer.is_success else answer.text] += 1
            await asyncio.sleep(0.01)

    # The machine is on one of the nodes; the other one stops.
    free = await _node_without_machines(deployment)
    async with asyncio.TaskGroup() as loads:
        loads.create_task(load())
        await eventually(lambda: outcomes["done"] > 10)
        await free.stop()
        try:
            before = outcomes["done"]
            await eventually(lambda: outcomes["done"] > before + 10)
            stop.set()
        finally:
            await free.start()
    assert outcomes.keys() == {"done"}, outcomes
    assert machine.is_open


async def _node_without_machines(deployment: Deployment) -> Site:
    free: list[Site] = []

    async def is_there() -> bool:
        for node in deployment.nodes:
            host, port = node.settings.host, node.settings.port
            async with httpx.AsyncClient(trust_env=False, timeout=TIMEOUT) as client:
                metrics = (await client.get(f"http://{host}:{port}/metrics")).text
            if "outrider_machines 0.0" in metrics:
                free.append(node)
        return bool(free)

    await eventually(is_there)
    return free[0]
