"""Requests that try to slip past the checks: odd paths, methods, headers and bodies."""

import asyncio
import json

import pytest

from tests.rig.errors import assert_error
from tests.rig.people import V1, dashboard
from tests.rig.samples import session
from tests.rig.site import Owner, Site
from tests.rig.sockets import refused
from tests.rig.waiting import TIMEOUT

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.one_store]


async def raw(site: Site, *parts: bytes) -> tuple[int, bytes]:
    """Send bytes as they are; return the status of the answer and all of it."""
    host, port = site.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        async with asyncio.timeout(TIMEOUT):
            for part in parts:
                writer.write(part)
                await writer.drain()
            answer = await reader.readuntil(b"\r\n\r\n")
    finally:
        writer.transport.abort()
    return int(answer.split(b" ", 2)[1]), answer


def get(path: str, *headers: str) -> bytes:
    lines = [f"GET {path} HTTP/1.1", "Host: localhost", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1")


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1//daemons",
        "//api/v1/daemons",
        "/api/v1/daemons/",
        "/api/v1/daemons.",
        "/api/v1/./daemons",
        "/api/v1/x/../daemons",
        "/API/v1/daemons",
        "/api/v1/daemons;x=1",
        "/api%2Fv1%2Fdaemons%2F",
        "/api/v1/daemons%00",
        "/api/v1/daemons%20",
        "/api/v2/daemons",
    ],
)
async def test_a_path_that_nearly_is_one_is_not_found(site: Site, user: Owner, path: str) -> None:
    """Nothing is found, with a key or without: no route has a second name with other checks."""
    status, answer = await raw(site, get(path))
    assert status in {400, 404}, answer
    status, answer = await raw(site, get(path, f"Authorization: Bearer {user.key}"))
    assert status in {400, 404}, answer


@pytest.mark.parametrize("path", ["/api/v1/%64aemons", "/api/v1/daemons%0A", "/api/v1/daemons?x"])
async def test_another_spelling_of_a_path_has_its_checks(
    site: Site, user: Owner, path: str
) -> None:
    """It is checked as the route that it leads to."""
    status, answer = await raw(site, get(path))
    assert status in {401, 404}, answer


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PUT", "TRACE", "PROPFIND"])
async def test_a_method_that_no_endpoint_has_gets_a_405(
    site: Site, user: Owner, method: str
) -> None:
    request = get(f"{V1}/daemons", f"Authorization: Bearer {user.key}")
    status, answer = await raw(site, request.replace(b"GET", method.encode(), 1))
    assert status == 405
    assert b"\r\nallow: GET\r\n" in answer
    assert b"access-control" not in answer.lower()


async def test_a_method_is_not_overridden(user: Owner) -> None:
    headers = {"X-HTTP-Method-Override": "DELETE", "X-Method-Override": "DELETE"}
    answer = await user.api.post(f"{V1}/account?_method=DELETE", headers=headers)
    assert_error(answer, 405)


class TestHeaders:
    async def test_two_credentials_are_refused(self, site: Site, user: Owner) -> None:
        """A proxy may have looked at the other one."""
        good, bad = f"Authorization: Bearer {user.key}", "Authorization: Bearer x"
        for pair in ((good, bad), (bad, good), (good, good)):
            assert (await raw(site, get(f"{V1}/daemons", *pair)))[0] == 401
        assert (await raw(site, get(f"{V1}/daemons", good, "X-A: 1", "X-A: 2")))[0] == 200

    @pytest.mark.parametrize(
        "path",
        [
            "?access_token={key}",
            "?key={key}",
            "?token={key}",
            "?api_key={key}",
            "?Authorization={key}",
        ],
    )
    async def test_a_key_in_the_address_is_ignored(
        self, site: Site, user: Owner, path: str
    ) -> None:
        answer = await site.client().get(f"{V1}/daemons{path.format(key=user.key)}")
        assert_error(answer, 401, "AUTH_REQUIRED")

    @pytest.mark.parametrize("name", ["X-API-Key", "Proxy-Authorization", "X-Authorization"])
    async def test_a_key_in_another_header_is_ignored(
        self, site: Site, user: Owner, name: str
    ) -> None:
        answer = await site.client().get(f"{V1}/daemons", headers={name: f"Bearer {user.key}"})
        assert_error(answer, 401, "AUTH_REQUIRED")

    @pytest.mark.parametrize(
        "value",
        ["Bearer\t{key}", "Bearer{key}", "Bearer,{key}", "Bearer {key},{key}", "Bearer {key}\x00"],
    )
    async def test_a_malformed_credential_is_refused(
        self, site: Site, user: Owner, value: str
    ) -> None:
        header = f"Authorization: {value.format(key=user.key)}"
        status, _ = await raw(site, get(f"{V1}/daemons", header))
        assert status in {400, 401}

    @pytest.mark.parametrize(
        "headers",
        [
            ["Content-Length: 3", "Transfer-Encoding: chunked"],
            ["Content-Length: 3", "Content-Length: 4"],
            ["Transfer-Encoding: chunked, identity"],
            ["Transfer-Encoding : chunked"],
            ["Content-Length: +3"],
            [" folded: x"],
        ],
    )
    async def test_a_body_of_ambiguous_length_is_refused(
        self, site: Site, user: Owner, headers: list[str]
    ) -> None:
        """RFC 9112, section 6.3: request smuggling begins there."""
        key = f"Authorization: Bearer {user.key}"
        request = get(f"{V1}/daemons/machine_x/revoke", key, *headers).replace(b"GET", b"POST", 1)
        assert (await raw(site, request + b"0\r\n\r\n"))[0] == 400

    async def test_endless_headers_are_cut_off(self, site: Site, user: Owner) -> None:
        """They would fill the memory before anybody is asked who they are."""
        for endless in (b"x" * 16_384, b"X-Y: z\r\n" * 2048):
            head = b"GET /api/v1/daemons HTTP/1.1\r\nHost: localhost\r\nX-A: "
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await raw(site, head, *[endless] * 2000)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await raw(site, b"GET /", *[b"x" * 16_384] * 2000)

    async def test_as_many_headers_as_anybody_sends_are_read(self, site: Site, user: Owner) -> None:
        request = get(f"{V1}/daemons", f"Authorization: Bearer {user.key}", f"X: {'x' * 16_000}")
        assert (await raw(site, request))[0] == 200


class TestBodies:
    async def test_the_last_of_two_equal_names_counts(self, user: Owner) -> None:
        """The last one counts, for the check and for the machine alike."""
        machine = await user.machine(session())
        task = user.sends(
            "POST",
            f"{V1}/daemons/{machine.id}/terminal",
            content='{"command": "first", "command": "second"}',
        )
        command = await machine.takes("terminal")
        assert json.loads(bytes(command.payload))["command"] == "second"
        await machine.answers(command)
        assert (await task).status_code == 200

    @pytest.mark.parametrize(
        "body",
        [
            '{"command": "id"} {}',
            '{"command": "id"',
            "[" * 100_000,
            '{"a":' * 100_000,
            "NaN",
            '{"command": NaN}',
            '"command"',
            "null",
            "",
            '\ufeff{"command": "id"}',
            '{"command": "\\ud800"}',
        ],
    )
    async def test_a_body_that_is_no_json_object_gets_a_400(self, user: Owner, body: str) -> None:
        answer = await user.api.post(f"{V1}/daemons/machine_x/terminal", content=body.encode())
        assert_error(answer, 400)


async def test_a_handshake_at_a_path_that_cannot_be(user: Owner) -> None:
    response = await refused(user, f"{V1}/daemons/x%00/terminals/a")
    assert_error(response, 404)
    assert response.headers["ratelimit"]


async def test_an_id_with_odd_letters_is_only_unknown(user: Owner) -> None:
    page = await dashboard(user)
    for id_ in ("%00", "%F0%9F%8E%89", "%FF", "a%0Ab", "x" * 2000, "%27%20OR%201=1--"):
        assert_error(await page.get(f"{V1}/daemons/{id_}/status"), 404)
        assert_error(await page.delete(f"{V1}/account/keys/{id_}"), 404)
        assert_error(await page.get(f"{V1}/shortcuts/{id_}:cli:x/status"), 404)
        assert_error(await page.get(f"{V1}/webhooks/{id_}/deliveries"), 404)
    assert_error(await page.get(f"{V1}/daemons/a%00b/status?x=%00"), 404)
    assert_error(await page.get(f"{V1}/audit?other=a%00b"), 400)
