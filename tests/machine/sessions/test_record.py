"""A daemon that was updated finds the sessions of the one before it: names on disk stay."""

import msgspec

from outrider.machine.sessions.record import SessionRecord

ON_DISK = (
    b'{"id":"session_1","kind":"ide","type":"jupyterlab","name":"JupyterLab","path":"/srv",'
    b'"model":null,"createdAt":1,"lastActivityAt":2,"generatingSince":3,"asked":"act_1",'
    b'"failed":"no credit","native":{"agent":"codex"}}'
)


def test_the_names_on_disk() -> None:
    record = msgspec.json.decode(ON_DISK, type=SessionRecord)
    assert (record.emitted_action, record.emitted_error) == ("act_1", "no credit")
    assert record.selected_agent == "codex"
    written = msgspec.json.encode(record)
    assert msgspec.json.decode(ON_DISK).items() <= msgspec.json.decode(written).items()
    assert msgspec.json.decode(written, type=SessionRecord) == record
