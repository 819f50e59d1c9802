"""Generated requests to every operation, with credentials that may and that may not make them."""

import asyncio
import json
from collections.abc import AsyncIterator
from functools import cache
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import pytest
import pytest_asyncio
import requests
import schemathesis
from hypothesis import given
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from outrider.contract.errors import ApiError
from outrider.service.accounts import credentials
from outrider.service.accounts.store import api_keys
from outrider.service.endpoints import ENDPOINTS
from outrider.service.http.endpoint import Endpoint
from outrider.service.http.openapi import describe
from outrider.service.http.request_body import decode_query
from tests.rig.errors import assert_error
from tests.rig.people import dashboard, person
from tests.rig.samples import session
from tests.rig.site import Owner, Site
from tests.service.http.test_every_endpoint import CREDENTIALS, LET_IN, Verdict, header, verdict

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.fuzz,
    pytest.mark.one_store,
]

load_all_checks()
DOCUMENT: Final = json.loads(json.dumps(describe(ENDPOINTS)))
SCHEMA: Final = schemathesis.openapi.from_dict(DOCUMENT)
CHECKS: Final = [
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
]
ENDS_ITS_TARGET: Final = {"disconnect", "revoke", "delete_webhook", "revoke_key"}


@cache
def cases(path: str, method: str) -> st.SearchStrategy[schemathesis.Case[Any]]:
    """Return requests that fit the description, and some that do not."""
    operation = SCHEMA[path][method]
    modes = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    return st.one_of([operation.as_strategy(generation_mode=mode) for mode in modes])


class Bench:
    """An account with one of everything that a path may name."""

    def __init__(self, owner: Owner, ids: dict[str, str], spare: str) -> None:
        self.owner = owner
        self._ids = ids
        self._spare = spare
        self.client = owner.site.client()

    def ids(self, endpoint: Endpoint[Any]) -> dict[str, str]:
        """Return parameters of the endpoint's path that name something of the account."""
        ids = dict(self._ids)
        if endpoint.operation in ENDS_ITS_TARGET:
            # Others need it: a machine that is offline anyway, and what is not there.
            ids |= {"daemonId": self._spare, "webhookId": "webhook_none", "keyId": "key_none"}
        return {name: ids[name] for name in ids if f"{{{name}}}" in endpoint.path}

    async def send(
        self, case: schemathesis.Case[Any], headers: dict[str, str]
    ) -> schemathesis.Response:
        """Send a request with this credential and no other."""
        case.cookies.clear()
        for name in list(case.headers):
            if name.lower() in {"authorization", "cookie"}:
                del case.headers[name]
        url = self.owner.site.url
        # On a thread: the service and the machine are on this one's event loop.
        with requests.Session() as connection:
            connection.trust_env = False
            return await asyncio.to_thread(
                case.call, base_url=url, headers=headers, timeout=30, session=connection
            )


@pytest_asyncio.fixture(loop_scope="session")
async def bench(site: Site) -> AsyncIterator[Bench]:
    async with site.visit():
        owner = await person(site)
        running = session()
        machine = (await owner.machine(running)).obliges()
        page = await dashboard(owner)
        hook = {"url": "http://127.0.0.1:9/hook", "events": ["*"]}
        webhook = (await page.post("/api/v1/webhooks", json=hook)).json()["id"]
        tested = (await page.post(f"/api/v1/webhooks/{webhook}/test")).json()
        key = await api_keys.by_hash(site.database, credentials.digest(owner.key))
        signed_in = (await page.get("/api/v1/account/sessions")).json()["sessions"][0]["id"]
        assert key is not None
        ids = {
            "daemonId": machine.id,
            "ideId": f"{machine.id}:session:{running.id}",
            "name": "build",
            "webhookId": webhook,
            "deliveryId": tested["delivery"]["id"],
            "keyId": key.id,
            "sessionId": signed_in,
        }
        yield Bench(owner, ids, (await owner.enrolls()).daemon_id)


@given(data=st.data())
async def test_whatever_is_sent_the_answer_is_one_that_is_described(
    bench: Bench, data: st.DataObject
) -> None:
    """No 5xx, no status, header or field that the description does not have."""
    endpoint = data.draw(st.sampled_from(ENDPOINTS))
    case = data.draw(cases(endpoint.path, endpoint.method))
    credential = "full key" if data.draw(st.booleans()) else "fresh session"
    if verdict(endpoint, credential) is not LET_IN:
        credential = "fresh session"
    case.path_parameters |= data.draw(st.sampled_from([bench.ids(endpoint), {}]))
    response = await bench.send(case, await header(bench.owner, credential))
    assert response.status_code < 500, response.text
    assert response.headers["x-request-id"]
    case.validate_response(response, checks=CHECKS)


WRONG: Final = [name for name in CREDENTIALS if name not in {"full key", "fresh session"}]


@given(data=st.data())
async def test_whatever_is_sent_a_wrong_credential_is_refused_first(
    bench: Bench, data: st.DataObject
) -> None:
    """The same refusal as for a request in which nothing else is wrong."""
    credential = data.draw(st.sampled_from(WRONG))
    refusing = [one for one in ENDPOINTS if verdict(one, credential) is not LET_IN]
    endpoint = data.draw(st.sampled_from(refusing))
    case = data.draw(cases(endpoint.path, endpoint.method))
    case.path_parameters |= bench.ids(endpoint)
    response = await bench.send(case, await header(bench.owner, credential))
    answer: dict[str, Any] = response.json()
    query = urlsplit(response.request.url or "").query.encode()
    expected = refusal(endpoint, credential, query)
    assert (response.status_code, answer.get("code")) == expected


NOT_UPGRADED: Final = Verdict(426)


def refusal(endpoint: Endpoint[Any], credential: str, query: bytes) -> Verdict:
    """Return how a request with this query and a wrong credential has to be refused."""
    if endpoint.read_scope is None or credential != f"key without {endpoint.scope}":
        return verdict(endpoint, credential)
    # The key may read: only its query says whether the request would do more.
    assert endpoint.query is not None
    assert endpoint.is_read is not None
    try:
        only_reads = endpoint.is_read(decode_query(endpoint.query, query))
    except ApiError as error:
        return Verdict(error.status, error.code)
    return NOT_UPGRADED if only_reads else verdict(endpoint, credential)


def damaged(body: bytes) -> st.SearchStrategy[bytes]:
    """Return bodies in which some bytes are replaced, left out or added."""
    places = st.integers(0, len(body))

    def replaced(start: int, end: int, by: bytes) -> bytes:
        return body[:start] + by + body[max(start, end) :]

    return st.builds(replaced, places, places, st.binary(max_size=8))


def example(endpoint: Endpoint[Any]) -> bytes:
    """Return a body that the endpoint takes."""
    operation = DOCUMENT["paths"][endpoint.path][endpoint.method.lower()]
    content = operation["requestBody"]["content"]["application/json"]
    named = [one["value"] for one in content.get("examples", {}).values()]
    return json.dumps([*named, content.get("example")][0]).encode()


WITH_BODY: Final = [endpoint for endpoint in ENDPOINTS if endpoint.bodies]


@given(data=st.data())
async def test_a_damaged_body_is_refused_or_taken(bench: Bench, data: st.DataObject) -> None:
    endpoint = data.draw(st.sampled_from(WITH_BODY))
    path = endpoint.path.format_map(bench.ids(endpoint))
    response = await bench.client.request(
        endpoint.method,
        path,
        content=data.draw(damaged(example(endpoint))),
        headers=await header(bench.owner, "fresh session"),
    )
    if response.status_code >= 400:
        assert_error(response, response.status_code, response.json().get("code"))
    assert response.status_code < 500, response.text


@given(
    method=st.sampled_from(["GET", "POST", "PATCH", "DELETE", "PUT", "HEAD", "OPTIONS"]),
    path=st.lists(
        st.sampled_from(["shortcuts", "daemons", "chat", "webhooks", "auth", "account", ""])
        | st.from_regex(r"(%[0-9a-fA-F]{2}|[!$-.0-9:-;=@-~])*", fullmatch=True),
        max_size=4,
    ),
    query=st.from_regex(
        r"((limit|before|agentType|[a-z]*)=?(%[0-9A-F]{2}|[!$-~])*&?)*", fullmatch=True
    ),
)
async def test_whatever_the_path_is_it_is_no_fault_of_the_service(
    bench: Bench, method: str, path: list[str], query: str
) -> None:
    target = f"/api/v1/{'/'.join(path)}?{query}".encode()
    url = httpx.URL(bench.owner.site.url).copy_with(raw_path=target)
    response = await bench.owner.api.request(method, url)
    assert response.status_code < 500, response.text
