"""A browser's own EventSource, over a restart of the service."""

from typing import Any

import pytest

from outrider.contract.frames import Event
from tests.conftest import StartSite
from tests.rig.browser import page_at
from tests.rig.people import person
from tests.rig.waiting import eventually
from tests.service.webhooks.events import agent_event

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.one_store,
    pytest.mark.ide,
]

FOLLOW = """() => {
    window.frames_ = [];
    const source = new EventSource("/api/v1/events?events=agent:*");
    for (const name of ["stream:ready", "stream:end", "agent:generating_started"]) {
        source.addEventListener(name, (event) => {
            window.frames_.push({name, id: event.lastEventId, data: JSON.parse(event.data)});
        });
    }
}"""


async def test_an_event_source_resumes_after_a_restart_of_the_service(
    start_site: StartSite,
) -> None:
    """Nothing is missed or repeated. It can send no header itself: the browser adds the key."""
    site = await start_site()
    owner = await person(site)
    enrolled = await owner.enrolls()
    machine = await owner.machine(enrolled=enrolled)
    async with page_at(site.url) as page:
        await page.set_extra_http_headers({"Authorization": f"Bearer {owner.key}"})
        await page.goto("/device")  # its policy lets it connect
        await page.evaluate(FOLLOW)

        async def frames(name: str) -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = await page.evaluate("window.frames_")
            return [frame for frame in found if frame["name"] == name]

        async def is_ready(times: int) -> bool:
            return len(await frames("stream:ready")) == times

        async def has(*ids: str) -> bool:
            got = await frames("agent:generating_started")
            return [frame["data"]["id"] for frame in got] == list(ids)

        await eventually(lambda: is_ready(1))
        events = [agent_event() for _ in range(4)]
        ids = [event.id for event in events]
        await machine.say(Event(seq=1, event=events[0]), Event(seq=2, event=events[1]))
        await eventually(lambda: has(*ids[:2]))
        await site.stop()
        await site.start()
        machine = await owner.machine(enrolled=enrolled)
        await machine.say(Event(seq=3, event=events[2]))
        await eventually(lambda: is_ready(2))
        await machine.say(Event(seq=4, event=events[3]))
        await eventually(lambda: has(*ids))
        fresh, resumed = await frames("stream:ready")
        assert (fresh["data"]["resume"], resumed["data"]["resume"]) == ("fresh", "ok")
        (end,) = await frames("stream:end")
        assert end["data"]["reason"] == "draining"
