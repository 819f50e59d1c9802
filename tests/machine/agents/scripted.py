"""A scripted agent: for what a real one cannot be made to show when the test wants it."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from outrider.contract.commands import ChatInput
from outrider.contract.errors import ApiError
from outrider.contract.ids import new_id
from outrider.contract.resources import ActionOption, Message, PendingAction
from outrider.contract.resources import Provider as Description
from outrider.machine.agents.adapter import Adapter, Agent, ChatObserver, Observation, Observer
from outrider.machine.agents.provider import Provider
from outrider.machine.agents.provider_spec import ProviderSpec
from outrider.machine.sessions.record import SessionRecord

OPTIONS = [
    ActionOption(id="1", label="Yes", kind="allow_once"),
    ActionOption(id="2", label="Always", kind="allow_always"),
    ActionOption(id="3", label="No", kind="reject_once"),
]


class ScriptedAdapter(Adapter, Agent):
    """Does what the test says, and remembers what it was told."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.name = kind.title()
        self.agents = {kind: self}
        self.observer: Observer | None = None
        self.first = Observation(status="idle")
        self.submitted: list[str] = []
        self.answered: list[tuple[str, str]] = []
        self.chat: list[Message] = []
        self.open_ids: set[str] = set()
        self.has_read = True
        self.chat_is_late = False
        self.chat_observer: ChatObserver | None = None
        self.refuse: ApiError | None = None
        self.never: ApiError | None = None
        self.refused = self.interrupted = 0
        self.after_interrupt = "idle"
        self.gate = asyncio.Event()
        self.gate.set()
        self.is_ready = asyncio.Event()
        self.is_ready.set()
        self.closed = self.detached = False
        self.proof: dict[str, Any] = {}

    def see(self, status: str, **more: Any) -> None:
        assert self.observer is not None
        self.observer(self.kind, Observation(status=status, **more))  # type: ignore[arg-type]

    def ask(self, action_id: str, message: str = "May I?") -> None:
        self.see(
            "waiting_approval",
            pending=PendingAction(id=action_id, message=message, options=OPTIONS),
        )

    def observe(self, observer: Observer) -> None:
        self.observer = observer
        self._notify()

    def _notify(self) -> None:
        assert self.observer is not None
        self.observer(self.kind, self.first)

    async def ready(self) -> None:
        await self.is_ready.wait()

    def check(self, message: ChatInput) -> None:
        if self.never is not None:
            raise self.never

    async def deliver(self, message_id: str, message: ChatInput) -> None:
        await self.gate.wait()
        if self.refuse is not None:
            self.refused += 1
            raise self.refuse
        self.submitted.append(message.as_text())
        self.see("generating")

    async def choose(self, action: PendingAction, option: ActionOption) -> bool:
        await self.gate.wait()
        if self.refuse is not None:
            raise self.refuse
        self.answered.append((action.id, option.id))
        self.see("generating")
        return True

    async def interrupt(self) -> None:
        await self.gate.wait()
        if self.refuse is not None:
            raise self.refuse
        self.interrupted += 1
        self.see(self.after_interrupt)

    async def messages(self) -> Sequence[Message]:
        return self.chat

    def observe_chats(self, observer: ChatObserver) -> None:
        self.chat_observer = observer

    def open_texts(self) -> Mapping[str, str]:
        return {message.id: message.content for message in self.chat if message.id in self.open_ids}

    def completed_messages(self, start: int, *, is_turn_over: bool) -> Sequence[Message] | None:
        if not self.has_read:
            return None
        messages = [message for message in self.chat[start:] if message.id not in self.open_ids]
        return messages if is_turn_over or not self.chat_is_late else []

    def say(self, *contents: str, is_open: bool = False) -> None:
        """Add messages to the chat; `is_open`: they may still change."""
        for content in contents:
            message = Message(
                id=new_id("msg"),
                index=len(self.chat),
                role="assistant",
                kind="text",
                content=content,
                timestamp=1_700_000_000_000 + len(self.chat),
            )
            self.chat.append(message)
            if is_open:
                self.open_ids.add(message.id)
        if self.chat_observer is not None:
            self.chat_observer(self.kind)

    async def close(self) -> None:
        self.closed = True

    async def detach(self) -> None:
        self.detached = True

    def evidence(self) -> dict[str, Any]:
        return dict(self.proof)


class ScriptedProvider(Provider):
    """Launches scripted agents."""

    def __init__(self, kind: str = "robot") -> None:
        self.spec = ProviderSpec(
            type=kind,
            category="cli",
            display_name=kind.title(),
            command=[kind],
            install=f"buy a {kind}",
        )
        self.installed = True
        self.error: str | None = None
        self.made: list[ScriptedAdapter] = []
        self.next_first = Observation(status="idle")
        self.breaks: Exception | None = None
        self.unresumable: str | None = None
        self.resuming: asyncio.Event | None = None

    def describe(self) -> Description:
        described = self.spec.description("/bin/true" if self.installed else None)
        described.error = self.error
        return described

    async def launch(self, record: SessionRecord) -> ScriptedAdapter:
        adapter = ScriptedAdapter(record.type)
        adapter.first = self.next_first
        self.made.append(adapter)
        return adapter

    def not_resumable(self, record: SessionRecord) -> str | None:
        return self.unresumable

    async def resume(self, record: SessionRecord) -> ScriptedAdapter:
        if self.resuming is not None:
            await self.resuming.wait()
        return await self.restore(record)

    async def restore(self, record: SessionRecord) -> ScriptedAdapter:
        if self.breaks is not None:
            raise self.breaks
        return await self.launch(record)
