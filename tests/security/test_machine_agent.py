"""Attacks on a machine agent: by names, commands, records, files and secrets.

`tests/machine` has each in detail.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outrider.contract.frames import MAX_FRAME_BYTES
from tests.machine.agents.cli.transcripts.records import KINDS
from tests.machine.agents.machine import running_in
from tests.machine.redaction.corpus import secrets
from tests.machine.system.test_confined_directory import ONLY_LINUX, swapping
from tests.rig.waiting import TIMEOUT, eventually
from tests.security.machine_target import MachineTarget, machine_target
from tests.security.target import MB

CLAUDE = KINDS[0]


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[MachineTarget]:
    """A machine agent to attack."""
    async with machine_target(tmp_path) as running:
        yield running


async def test_b8_and_b9_launch_directories_are_only_names(
    target: MachineTarget, tmp_path: Path
) -> None:
    """One ran a command; one with a newline wedged every terminal agent of the machine."""
    names = [
        "d#(cd;touch ran)",
        "##(cd;touch ran)#[x",
        "#S",
        "#{pane_id}",
        "line\nbreak",
        "\x1b]0;x\x07",
    ]
    directories = [target.home / name for name in names]
    for directory in directories:
        directory.mkdir()
    async with target.grows_at_most(100 * MB):
        first = await target.launch("echo", tmp_path)
        launched = asyncio.gather(*(target.launch("echo", directory) for directory in directories))
        await target.healthy_meanwhile(launched)
        agents = [first, *await launched]
        # Replies of tmux have not shifted: each agent answers its own message.
        answers = [target.says(agent, f"number {n}") for n, agent in enumerate(agents)]
        for number, answer in enumerate(await asyncio.gather(*answers)):
            assert answer == f"you said number {number}"
    started = Counter(directory for directory, _ in target.agents())
    assert started == Counter(map(str, [tmp_path, *directories]))
    status = await target.call("GET", f"/daemons/{target.machine}/status")
    assert {session["workspace"]["path"] for session in status["sessions"]} == set(started)
    assert not (target.home / "ran").exists()


async def test_b10_two_hundred_timeouts_at_once(tmp_path: Path) -> None:
    """Each has children, which are killed with it."""
    command = {"command": "for i in 1 2 3; do sleep 987 & done; wait"}

    async with machine_target(tmp_path, command_timeout="5") as target:

        async def run() -> None:
            path = f"/daemons/{target.machine}/terminal"
            await target.call("POST", path, command, 504)

        async with target.grows_at_most(100 * MB):
            await target.healthy_meanwhile(asyncio.gather(*(run() for _ in range(200))))
        await eventually(lambda: "sleep 987" not in running_in(target.home))


async def test_b10_a_record_of_20_000_orphans_and_a_message_of_60_mb(tmp_path: Path) -> None:
    """The orphans blocked everything for 16.7 s; the message made its chat unreadable."""
    async with machine_target(tmp_path, record="claude") as target:
        project = tmp_path / "project"
        project.mkdir()
        agent = await target.launch("echo", project)
        ((_, conversation),) = target.agents()
        kind = replace(CLAUDE, path=f".claude/projects/x/{conversation}.jsonl")
        orphans: list[Any] = [
            kind.answer(number, str(number))[0] | {"parentUuid": f"nowhere {number}"}
            for number in range(20_000)
        ]

        async def read(messages: int) -> Any:
            async def is_read() -> bool:
                return bool((await target.chat(agent, "?limit=1"))["totalMessages"] == messages)

            await eventually(is_read, 2 * TIMEOUT)
            return await target.chat(agent, "?limit=1")

        async with target.grows_at_most(400 * MB):
            kind.append(target.home, *orphans)
            await target.healthy_meanwhile(read(20_000))
            kind.answers(target.home, "x" * (60 * MB), "after", first=20_000)
            await target.healthy_meanwhile(read(20_002))
            chat = await target.chat(agent)
        assert len(json.dumps(chat)) < MAX_FRAME_BYTES
        assert chat["messages"][-1]["content"] == "after"


@ONLY_LINUX
async def test_b11_files_while_their_directory_is_swapped(
    target: MachineTarget, tmp_path: Path
) -> None:
    for verb, done in (("read", "inside"), ("write", "written")):
        project, outside = tmp_path / verb / "project", tmp_path / verb / "outside"
        for folder, text in ((project / "folder", "inside"), (outside, "secret")):
            folder.mkdir(parents=True)
            (folder / "file").write_text(text)
        agent = await target.launch("scripted", project)
        async with target.grows_at_most(50 * MB):
            with swapping(project):
                path = project / "folder" / "file"
                race = asyncio.ensure_future(target.says(agent, f"fs-race {verb} 5000 {path}"))
                await target.healthy_meanwhile(race)
        assert json.loads(await race).keys() - {"failed"} == {done, "refused"}
        assert (outside / "file").read_text() == "secret"
        assert {path.name for path in outside.iterdir()} == {"file"}


async def test_b11_a_hard_link_is_written_apart(target: MachineTarget, tmp_path: Path) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside"
    project.mkdir()
    outside.write_text("secret")
    (project / "link").hardlink_to(outside)
    agent = await target.launch("scripted", project)
    await target.says(agent, f"fs write {project / 'link'}")
    assert (project / "link").read_text() == "written"
    assert outside.read_text() == "secret"


def batches(texts: list[str], size: int) -> Iterator[list[str]]:
    """Split texts into lists of about so many characters."""
    batch: list[str] = []
    for text in texts:
        batch.append(text)
        if sum(map(len, batch)) > size:
            yield batch
            batch = []
    yield batch


async def test_b18_no_secret_of_any_form_leaves_in_a_debug_bundle(
    target: MachineTarget, tmp_path: Path
) -> None:
    """42 of 162 forms did. Also split by colours, as on a screen."""
    agent = await target.launch("echo", tmp_path)
    corpus = secrets()
    assert len(corpus) >= 162
    coloured = [
        secret.text[:at] + "\x1b[31m" + secret.text[at:]
        for secret in corpus
        if secret.kind != "split" and "\n" not in secret.text
        for at in [len(secret.text) // 2]
    ]
    texts = [secret.text for secret in corpus] + coloured
    hidden = [line for secret in corpus for line in secret.hidden.split("\n")]
    redacted = 0
    for batch in batches(texts, 10_000):
        body = {"frontendSnapshot": {"texts": "\n\n".join(batch)}}
        answer = await target.call("POST", f"/shortcuts/{agent}/chat/debug", body)
        bundle = answer["bundle"]
        assert bundle["omitted"] == []
        redacted += sum(bundle["redactions"].values())
        bundle_text = json.dumps(answer, ensure_ascii=False) + answer["text"]
        assert not [line for line in hidden if line in bundle_text]
    assert redacted >= len(corpus)


async def test_b18_crafted_texts(target: MachineTarget, tmp_path: Path) -> None:
    """40 KB took 17.8 s; here are fifteen times as much, four times at once."""
    agent = await target.launch("echo", tmp_path)
    pieces = ["a\n", "-----END PRIVATE KEY-----", "eyJ.", 'password="', "\\u001", "<password>"]
    texts = {str(number): piece * (100_000 // len(piece)) for number, piece in enumerate(pieces)}
    body = {"frontendSnapshot": texts}
    bundles = (target.call("POST", f"/shortcuts/{agent}/chat/debug", body) for _ in range(4))
    async with target.grows_at_most(60 * MB):
        await target.healthy_meanwhile(asyncio.gather(*bundles))
