"""The debug bundle of a session: what is in it, how large it gets, and what never is in it."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import psutil
import pytest

from outrider.contract.commands import ChatDebug
from outrider.contract.debug import MAX_RESPONSE_BYTES, MAX_SNAPSHOT_DEPTH
from outrider.contract.errors import ApiError
from outrider.contract.resources import Message
from outrider.machine.debug import worker
from outrider.machine.debug.bounds import Bounds, size
from outrider.machine.debug.bundle import MAX_WAITING
from outrider.machine.redaction.redactor import Redactor
from tests.machine.debug.conftest import Bench, said
from tests.machine.redaction.corpus import secrets
from tests.rig.waiting import eventually

CORPUS = secrets()


class TestParts:
    async def test_of_a_session_with_a_little_of_everything(self, bench: Bench) -> None:
        session = await bench.launch()
        bench.agent.proof = {"rule": "idle: prompt", "screen": "first line\n> ready"}
        bench.agent.chat = [said(0, "Hello", "user"), said(1, "Good day")]
        bench.agent.see("generating")
        bench.agent.see("idle", title="A chat", model="stub")
        answer = await bench.debugged(frontend_snapshot={"activeConversation": {"sessionId": "s"}})
        bundle = answer.bundle
        assert bundle.session == msgspec.to_builtins(session.describe())
        assert bundle.provider == msgspec.to_builtins(bench.provider.describe())
        assert bundle.parser["rule"] == "idle: prompt"
        assert bundle.terminal == {"source": "screen", "text": "first line\n> ready"}
        assert "screen" not in bundle.parser
        assert bundle.messages == msgspec.to_builtins(bench.agent.chat)
        assert [event["event"] for event in bundle.events] == [
            "agent:generating_started",
            "agent:generating_completed",
        ]
        assert {"outrider", "protocol", "python", "system", "tmux"} <= bundle.versions.keys()
        assert bundle.frontend_snapshot == {"activeConversation": {"sessionId": "s"}}
        assert (bundle.redactions, bundle.truncated) == ({}, False)
        assert (bundle.omitted, bundle.problems) == ([], [])
        for word in ("idle: prompt", "> ready", "Good day", "generating_completed", "A chat"):
            assert word in answer.text
        for word in ("activeConversation", session.record.id, bundle.versions["outrider"]):
            assert word in answer.text

    async def test_without_a_screen_and_a_snapshot(self, bench: Bench) -> None:
        await bench.launch()
        bundle = (await bench.debugged()).bundle
        assert bundle.terminal is None
        assert bundle.frontend_snapshot is None
        assert bundle.messages == []

    async def test_what_an_agent_without_a_screen_writes_to_stderr(self, bench: Bench) -> None:
        await bench.launch()
        bench.agent.proof = {"stderr": "it hurts", "turn": False}
        bundle = (await bench.debugged()).bundle
        assert bundle.terminal == {"source": "stderr", "text": "it hurts"}

    async def test_the_last_twenty_messages(self, bench: Bench) -> None:
        await bench.launch()
        bench.agent.chat = [said(i, f"number {i}") for i in range(50)]
        bundle = (await bench.debugged()).bundle
        assert [message["index"] for message in bundle.messages] == list(range(30, 50))
        assert not bundle.truncated

    async def test_the_last_events(self, bench: Bench) -> None:
        await bench.launch()
        for _ in range(30):
            bench.agent.see("generating")
            bench.agent.see("idle")
        events = (await bench.debugged()).bundle.events
        assert len(events) == 32
        assert events[-1]["event"] == "agent:generating_completed"

    async def test_an_agent_that_is_broken_has_a_bundle_all_the_same(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await bench.launch()

        async def messages() -> Sequence[Message]:
            raise ApiError(500, "The record is gone")

        def evidence() -> dict[str, Any]:
            raise RuntimeError("password=hunter2")

        monkeypatch.setattr(bench.agent, "messages", messages)
        monkeypatch.setattr(bench.agent, "evidence", evidence)
        answer = await bench.debugged()
        assert answer.bundle.messages == []
        assert answer.bundle.problems == [
            "parser: RuntimeError: password=[redacted:named-secret]",
            "messages: The record is gone",
        ]
        assert "The record is gone" in answer.text
        assert "hunter2" not in answer.text

    async def test_no_such_session_or_agent(self, bench: Bench) -> None:
        with pytest.raises(ApiError) as nowhere:
            await bench.debugged()
        assert nowhere.value.status == 404
        await bench.launch()
        with pytest.raises(ApiError) as nobody:
            await bench.debugged(agent_type="android")
        assert nobody.value.status == 404


class TestSecrets:
    async def test_the_whole_corpus_is_gone_from_every_part(
        self, bench: Bench, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """docs/debug.md, Secrets: gone from bundle and text, and from whatever is logged."""
        texts = [secret.text for secret in CORPUS]
        lines = "\n".join(f"$ {text}" for text in texts)
        await bench.launch()
        bench.agent.proof = {"screen": lines, "argv": texts, "env": {"a": {"b": lines}}}
        bench.agent.chat = [said(i, text) for i, text in enumerate(texts[-20:])]
        bench.agent.see("generating", title=texts[0])
        bench.agent.see("error", error=f"it failed at {texts[1]}", title=texts[2])
        answer = await bench.debugged(
            frontend_snapshot={"list": texts, "keys": dict.fromkeys(texts, 1), "text": lines}
        )
        bundle_text = json.dumps(msgspec.to_builtins(answer), ensure_ascii=False)
        logged = "".join(capfd.readouterr())
        for secret in CORPUS:
            for line in secret.hidden.split("\n"):
                assert line not in bundle_text
                assert line not in answer.text
                assert line not in logged
        assert sum(answer.bundle.redactions.values()) >= len(CORPUS)
        assert {"jwt", "private-key", "outrider-token", "named-secret", "url-password"} <= (
            answer.bundle.redactions.keys()
        )

    async def test_what_the_daemon_holds_is_not_changed(self, bench: Bench) -> None:
        session = await bench.launch()
        bench.agent.chat = [said(0, "password=hunter2")]
        bench.agent.see("idle", title="password=hunter2")
        snapshot = {"password": "hunter2"}
        await bench.debugged(frontend_snapshot=snapshot)
        assert session.describe().title == "password=hunter2"
        assert bench.agent.chat[0].content == "password=hunter2"
        assert snapshot == {"password": "hunter2"}


ALPHABETS = {"ascii": "word ", "quotes": '"\\', "control": "\x07\n", "boxes": "│─", "wide": "🎉",
             "fences": "`"}  # fmt: skip


class TestBounds:
    @pytest.mark.parametrize("alphabet", ALPHABETS)
    async def test_the_whole_response_has_256_kib(self, bench: Bench, alphabet: str) -> None:
        """docs/debug.md: at most 256 KiB in all, whatever its parts are full of."""
        much = ALPHABETS[alphabet] * 60_000
        await bench.launch()
        bench.agent.proof = {"screen": much, "updates": [much] * 20, "deep": {"a": {"b": much}}}
        bench.agent.chat = [said(i, much) for i in range(25)]
        for _ in range(20):
            bench.agent.see("generating", title=much)
            bench.agent.see("error", error=much + str(_), title=much, model=much)
        answer = await bench.debugged(
            frontend_snapshot={f"k{i}": [much[:5000]] * 3 for i in range(60)}
        )
        data = msgspec.json.encode(answer)
        assert len(data) <= MAX_RESPONSE_BYTES
        assert len(data) > MAX_RESPONSE_BYTES // 4
        assert len(answer.text) <= 65_536  # an issue on GitHub
        assert size(answer.text) <= 50 * 1024
        bundle = answer.bundle
        assert bundle.truncated
        for part in ("terminal.text", "messages", "frontendSnapshot"):
            assert any(said.startswith(part) for said in bundle.omitted)
        assert bundle.messages[-1]["index"] == 24
        assert bundle.session["status"] == "error"
        assert bundle.session["id"] in answer.text

    async def test_of_a_long_screen_the_end_is_kept(self, bench: Bench) -> None:
        await bench.launch()
        bench.agent.proof = {"screen": "".join(f"line {i}\n" for i in range(20_000))}
        terminal = (await bench.debugged()).bundle.terminal
        assert terminal is not None
        assert terminal["text"].endswith("line 19999\n")

    async def test_the_same_session_gives_the_same_bundle(self, bench: Bench) -> None:
        await bench.launch()
        bench.agent.chat = [said(i, f"{i} " * 9000) for i in range(25)]
        snapshot = {f"k{i}": {"x": ["a" * i * 100]} for i in range(90)}
        first = await bench.debugged(frontend_snapshot=snapshot)
        second = await bench.debugged(frontend_snapshot=snapshot)
        assert first == second

    def test_small_fields_survive_beside_a_huge_one(self) -> None:
        bounds = Bounds(Redactor())
        kept = bounds.fit({"huge": ["x" * 100_000], "small": {"a": 1}, "last": "z"}, 2048, "it")
        assert kept["small"] == {"a": 1}
        assert kept["last"] == "z"
        assert size(kept) <= 2048
        assert bounds.omitted[0].startswith("it.huge[0]: the beginning of a text of 100000")

    @pytest.mark.parametrize("room", [2, 10, 63, 64, 65, 200, 5000])
    @pytest.mark.parametrize(
        "value",
        [
            list(range(5000)),
            ["x" * 500] * 50,
            {f"key {i}": i for i in range(3000)},
            {"k" * 5000: "v" * 5000},
            {"a": [{"b": ["c" * 90, {"d": "│" * 90}]}] * 90},
            "🎉\x00\"\\" * 3000,
            "\ud800" * 3000,
            {"\udfff": "\ud800"},
            [[[[[[["deep"]]]]]]] * 400,
            [None, True, 1.5, -(2**53), "", {}, []] * 100,
        ],
    )  # fmt: skip
    def test_no_value_gets_larger_than_its_room(self, value: Any, room: int) -> None:
        kept = Bounds(Redactor()).fit(value, room, "x")
        assert kept is None or size(kept) <= room

    def test_what_is_nested_deep_is_cut(self) -> None:
        deep: Any = "bottom"
        for _ in range(60):
            deep = [deep]
        bounds = Bounds(Redactor())
        assert "bottom" not in json.dumps(bounds.fit(deep, 4096, "x"))
        assert bounds.omitted


def children() -> list[psutil.Process]:
    return psutil.Process().children()


def redacts(process: psutil.Process) -> bool:
    try:
        return worker.__name__ in process.cmdline()
    except psutil.NoSuchProcess:
        return False


class TestCost:
    """Two bundles at once delayed the daemon's other work 89-fold."""

    async def test_the_daemon_itself_redacts_nothing(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def redact(redactor: Redactor, text: str) -> str:
            pytest.fail("it holds the lock of the interpreter")

        monkeypatch.setattr(Redactor, "text", redact)
        await bench.launch()
        answer = await bench.debugged(frontend_snapshot={"text": "password=hunter2"})
        assert answer.bundle.redactions == {"named-secret": 1}

    async def test_one_bundle_at_a_time_and_few_that_wait(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await bench.launch()
        gate, at_work = asyncio.Event(), 0

        async def messages() -> Sequence[Message]:
            nonlocal at_work
            at_work += 1
            assert at_work == 1
            await gate.wait()
            at_work -= 1
            return []

        monkeypatch.setattr(bench.agent, "messages", messages)
        requests = [asyncio.create_task(bench.debugged()) for _ in range(1 + MAX_WAITING)]
        await eventually(lambda: at_work == 1)
        with pytest.raises(ApiError, match="already") as refused:
            await bench.debugged()
        assert refused.value.status == 503
        gate.set()
        for answer in await asyncio.gather(*requests):
            assert answer.bundle.problems == []
        assert (await bench.debugged()).bundle.problems == []

    async def test_a_request_that_is_given_up_leaves_no_process(self, bench: Bench) -> None:
        await bench.launch()
        slow = {"text": "a\n" * 10_000 + "-----END PRIVATE KEY-----" * 800}
        request = asyncio.create_task(bench.debugged(frontend_snapshot=slow))
        await eventually(lambda: any(map(redacts, children())))
        request.cancel()
        await asyncio.wait([request])
        assert not any(map(redacts, children()))
        assert (await bench.debugged()).bundle.problems == []

    async def test_a_name_that_is_not_utf_8_reaches_the_process(self, bench: Bench) -> None:
        await bench.launch()
        bench.agent.proof = {"record": "/home/caf\udce9/chat"}
        assert (await bench.debugged()).bundle.parser["record"] == "/home/caf?/chat"


class TestRequest:
    def test_a_snapshot_that_is_nested_too_deep_is_refused(self) -> None:
        def nested(depth: int) -> bytes:
            return b'{"frontendSnapshot":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}"

        assert msgspec.json.decode(nested(MAX_SNAPSHOT_DEPTH), type=ChatDebug).frontend_snapshot
        with pytest.raises(msgspec.ValidationError, match="nested more than 64"):
            msgspec.json.decode(nested(MAX_SNAPSHOT_DEPTH + 1), type=ChatDebug)


async def test_the_text_s_fences_hold(bench: Bench) -> None:
    """Backticks in a message do not end the block that it stands in."""
    await bench.launch()
    bench.agent.chat = [said(0, "````\nfenced\n````")]
    lines = (await bench.debugged()).text.splitlines()
    assert lines.count("`````") == 2
