"""The body of a delivery: both shapes of the specification in one object."""

from typing import Any

import msgspec

from outrider.contract.events import AgentEvent, EventName


def agent_body(daemon_id: str, event: AgentEvent) -> bytes:
    """Return the body that tells an agent's event.

    A target id of another machine is not believed.
    """
    ide_id = event.ide_id
    if not ide_id.startswith(f"{daemon_id}:"):
        ide_id = f"{daemon_id}:session:{event.session_id}"
    body: dict[str, Any] = {
        "id": event.id,
        "event": event.event,
        "timestamp": event.timestamp,
        "daemonId": daemon_id,
        "ideId": ide_id,
        "ideType": event.ide_type,
    }
    payload: dict[str, Any] = {"chatTitle": event.chat_title, "ideType": event.ide_type}
    if event.event == EventName.GENERATING_COMPLETED:
        body["duration"] = payload["duration"] = event.duration
    payload["timestamp"] = event.timestamp
    payload["sessionId"] = event.session_id
    if event.message is not None:
        payload["message"] = event.message
    return msgspec.json.encode({**body, "payload": payload})


def machine_body(
    *,
    event_id: str,
    event: EventName,
    daemon_id: str,
    hostname: str,
    nickname: str,
    platform: str,
    now: int,
) -> bytes:
    """Return the body that tells that a machine came or went."""
    return msgspec.json.encode(
        {
            "id": event_id,
            "event": event,
            "timestamp": now,
            "daemonId": daemon_id,
            "payload": {
                "hostname": hostname,
                "nickname": nickname,
                "platform": platform,
                "timestamp": now,
            },
        }
    )


def test_body(*, event_id: str, webhook_id: str, now: int) -> bytes:
    """Return the body of a delivery that was asked for to see whether it arrives."""
    return msgspec.json.encode(
        {
            "id": event_id,
            "event": EventName.WEBHOOK_TEST,
            "timestamp": now,
            "payload": {"webhookId": webhook_id, "timestamp": now},
        }
    )
