"""llm chat, a real agent without a transcript: its chat is read off its screen."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from outrider.contract.commands import SendChat
from outrider.contract.errors import ApiError
from tests.machine.agents.conftest import Install
from tests.machine.agents.kind import AgentKind
from tests.machine.agents.kinds.llm_chat import LLM_CHAT, PROVIDER
from tests.machine.agents.machine import Agent, Machine, StubModel, machine, until
from tests.machine.agents.scenario import press

pytestmark = [
    pytest.mark.real_agent,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("others"),
]


LOGGED = 300
"""Characters of a message, its last ones, that the stub model logs."""


def _words(text: str) -> str:
    return "".join(text.replace("\u2060", "").split())


@pytest.fixture
def kind() -> AgentKind:
    return LLM_CHAT


@pytest.fixture
def changes() -> dict[str, str]:
    """What a test replaces in the provider file."""
    return {}


@pytest.fixture
async def box(
    tmp_path: Path, kind: AgentKind, install: Install, model: StubModel, changes: dict[str, str]
) -> AsyncIterator[Machine]:
    """A machine whose configuration describes llm chat."""
    text = PROVIDER.read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    providers = tmp_path / "config" / "providers"
    providers.mkdir(parents=True)
    (providers / "llm-chat.toml").write_text(text)
    async with machine(tmp_path, kind, install(kind), model.url) as running:
        yield running


@pytest.fixture
async def agent(box: Machine) -> Agent:
    return await box.launch()


async def chat(agent: Agent) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in await agent.messages()]


@pytest.fixture
def asked(model: StubModel) -> Callable[[], list[str]]:
    """What returns the messages that reached the model in this test, in order."""
    before = len(model.lines(ev="req", role="user"))
    return lambda: [str(line["text"]) for line in model.lines(ev="req", role="user")][before:]


async def test_a_chat(box: Machine, agent: Agent, model: StubModel) -> None:
    await agent.turn("hello")
    await agent.turn("again LINES:200")
    assert await chat(agent) == [
        ("user", "hello"),
        ("assistant", model.answer("hello")),
        ("user", "again LINES:200"),
        ("assistant", model.answer("again LINES:200")),
    ]
    assert box.event_names() == ["generating_started", "generating_completed"] * 2


@pytest.mark.parametrize(
    "text",
    [
        "!multi",
        "!edit",
        " !fragment x",
        "exit",
        " quit ",
        "words that are longer than a line of the terminal " * 8,
        "tabs\tand  spaces",
        "ünï 漢字 end",
        "🎉 end",
        "#S $HOME `id` ; 'quoted'",  # a backslash is a cursor key of llm chat's
        "trailing line break\n",
    ],
)
async def test_a_message_is_no_command_and_stands_there_once(
    agent: Agent, asked: Callable[[], list[str]], text: str
) -> None:
    await agent.turn(text)
    assert [content for role, content in await chat(agent) if role == "user"] == [text]
    assert len(await chat(agent)) == 2
    (arrived,) = asked()
    assert _words(text).endswith(_words(arrived))
    assert len(arrived) >= min(LOGGED, len(text.strip()))


@pytest.mark.parametrize(
    "text",
    [
        "several\nlines\n\n  with spaces, and a blank one\n!end\n!multi x\nexit",
        "\n".join(f"line {number} of many" for number in range(200)),
    ],
    ids=["special", "many"],
)
async def test_a_message_of_several_lines_is_one_message(
    agent: Agent, asked: Callable[[], list[str]], text: str
) -> None:
    added = await agent.turn(text)
    assert [message.role for message in added] == ["user", "assistant"]
    assert added[0].content == text
    (arrived,) = asked()
    assert [line.strip("\u2060 ") for line in arrived.split("\n")][1:] == [
        line.strip() for line in text.split("\n")
    ][-arrived.count("\n") :]
    assert len(arrived) >= min(LOGGED, len(text))


class TestWithoutItsWay:
    @pytest.fixture
    def changes(self) -> dict[str, str]:
        section = PROVIDER.read_text()
        start = section.index("[input.multi_line]")
        return {section[start : section.index("[[rules]]")]: ""}

    async def test_a_message_of_several_lines_is_refused(
        self, agent: Agent, asked: Callable[[], list[str]]
    ) -> None:
        with pytest.raises(ApiError, match="one line") as refused:
            await agent.say("several\nlines")
        assert refused.value.status == 400
        await agent.say("SLOW:0.02")
        with pytest.raises(ApiError, match="one line"):
            await agent.session.send(SendChat(message="several\nlines"))  # nor does it wait
        await agent.until("idle")
        assert asked() == ["SLOW:0.02"]


@pytest.mark.parametrize("verdict", ["approve", "reject"])
async def test_a_question_and_its_answer_are_no_chat(
    box: Machine, agent: Agent, verdict: str
) -> None:
    await agent.say("please TOOL[echo the output]")
    await agent.until("waiting_approval")
    pending = agent.session.describe().pending_action
    assert pending is not None
    assert pending.message == (
        "Tool call: shell({'command': 'echo the output'})\nApprove tool call? [y/N]:"
    )
    await agent.resolve(verdict)  # type: ignore[arg-type]
    await agent.until("idle")
    user, answer = await chat(agent)
    assert user == ("user", "please TOOL[echo the output]")
    assert "Approve" not in answer[1]
    assert "Tool call:" not in answer[1]
    assert answer[1].startswith("I will use a tool.\n")
    assert ("the output" in answer[1]) == (verdict == "approve")


class TestSilence:
    @pytest.fixture
    def changes(self) -> dict[str, str]:
        return {"settle = 0.5": "settle = 0.5\nsilence = 10"}

    async def test_a_message_that_nothing_comes_of_is_an_error(
        self, box: Machine, agent: Agent
    ) -> None:
        await agent.say("HANG")
        queued = await agent.session.send(SendChat(message="next"))
        assert queued.queued
        await agent.until("error")
        error = agent.session.describe().error
        assert error is not None
        assert "nothing new for 10 s" in error
        await until(lambda: not box.journal.queue(agent.id), box.kind.seconds)  # it was given
        press(agent, "C-c")
