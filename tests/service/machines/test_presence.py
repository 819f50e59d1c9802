"""Registrations of machines, and what is saved of their reports."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from sqlalchemy import event, insert, select, update

from outrider.contract.events import EventName
from outrider.contract.frames import Change, Snapshot
from outrider.contract.ids import new_id
from outrider.service.accounts.credentials import digest
from outrider.service.cluster.bus import Bus
from outrider.service.cluster.directory import FleetDirectory
from outrider.service.database import tables
from outrider.service.database.engine import Database
from outrider.service.events.log import Event
from outrider.service.machines.machine_state import MachineState
from outrider.service.machines.presence import LONGEST_STALE, Presence
from outrider.service.machines.store import machines
from outrider.service.webhooks.store.deliveries import Delivery
from tests.rig.machine import hello
from tests.rig.samples import MACHINE, session

pytestmark = pytest.mark.asyncio(loop_scope="session")

ACCOUNT = new_id("acct")
TOKEN = digest("omt_secret")


class Announced:
    """An event of a machine, recorded once it is stored."""

    def __init__(self, announced: list[tuple[EventName, str]], what: tuple[EventName, str]) -> None:
        self._announced, self._what = announced, what
        self.event = Event(new_id("evt"), ACCOUNT, what[0], b"{}", 0)
        self.deliveries: Sequence[Delivery] = ()

    def stored(self) -> None:
        """Record it."""
        self._announced.append(self._what)


class Here:
    """A node's presence, with a clock of its own and three enrolled machines."""

    def __init__(
        self, database: Database, node: str = "here", ids: list[str] | None = None
    ) -> None:
        self.database = database
        self.now = 1_000_000.0
        self.announced: list[tuple[EventName, str]] = []
        self.ids = ids or [new_id("machine") for _ in range(3)]
        self.presence = Presence(
            database=database,
            directory=FleetDirectory(Bus(), database),
            node=node,
            grace_period=30,
            announce=self._announce,
            clock=lambda: self.now,
        )

    async def _announce(self, name: EventName, state: MachineState) -> Announced:
        return Announced(self.announced, (name, state.id))

    async def enroll(self) -> None:
        common = {"nickname": "n", "hostname": "h", "platform": "linux", "version": "0"}
        async with self.database.begin() as transaction:
            await transaction.execute(
                insert(tables.accounts).values(id=ACCOUNT, plan="free", created_at=0)
            )
            for number, machine_id in enumerate(self.ids):
                await transaction.execute(
                    insert(tables.machines).values(
                        id=machine_id,
                        account_id=ACCOUNT,
                        token_hash=TOKEN if number == 0 else digest(str(number)),
                        created_at=0,
                        connected=False,
                        **common,
                    )
                )

    async def attempts(
        self, machine_id: str, token_hash: bytes | None = None
    ) -> MachineState | machines.AttachFailure:
        row = await machines.by_id(self.database, machine_id)
        assert row is not None
        number = self.ids.index(machine_id)
        token_hash = token_hash or (TOKEN if number == 0 else digest(str(number)))
        return await self.presence.register(row, token_hash, hello(session()))

    async def comes(self, machine_id: str) -> MachineState:
        state = await self.attempts(machine_id)
        assert isinstance(state, MachineState)
        return state

    async def saved(self, machine_id: str) -> Snapshot:
        row = await machines.by_id(self.database, machine_id)
        assert row is not None
        assert row.snapshot is not None
        return msgspec.json.decode(row.snapshot, type=Snapshot)


@pytest_asyncio.fixture(loop_scope="session")
async def here(database: Database) -> Any:
    made = Here(database)
    await made.enroll()
    yield made
    await made.presence.close()


def figures(free: int) -> Change:
    return Change(machine=msgspec.structs.replace(MACHINE, free_mem=free))


async def test_many_machines_are_reclaimed_with_few_statements(here: Here) -> None:
    """A node that was declared dead has seconds for that, and may have 10,000 machines."""
    count, statements = 1200, 0
    row = {
        "account_id": ACCOUNT,
        "nickname": "n",
        "hostname": "h",
        "platform": "linux",
        "version": "0",
        "created_at": 0,
        "connected": True,
        "node": "dead",
        "connection": 2,
    }
    ids = [new_id("machine") for _ in range(count)]
    rows = [{**row, "id": machine_id, "token_hash": digest(machine_id)} for machine_id in ids]
    async with here.database.begin() as transaction:
        await transaction.execute(insert(tables.machines), rows)
    offline, elsewhere, revoked = ids[0], ids[1], ids[2]
    await machines.revoke_token(here.database, revoked)
    async with here.database.begin() as transaction:
        await machines.detach(transaction, offline, {}, node=None, connection=None)

    def counted(*_: object) -> None:
        nonlocal statements
        statements += 1

    engine = here.database.engine.sync_engine
    event.listen(engine, "before_cursor_execute", counted)
    connections = dict.fromkeys(reversed(ids), 2) | {elsewhere: 1}
    reclaimed = await machines.reclaim(here.database, "alive", connections)
    event.remove(engine, "before_cursor_execute", counted)
    assert reclaimed == set(ids[3:])
    assert statements < 20
    assert [await machines.node_of(here.database, machine_id) for machine_id in ids[1:5]] == [
        *("dead", "dead"),
        *("alive", "alive"),
    ]


class TestArrivals:
    async def test_twice_the_same_one_together(self, here: Here) -> None:
        first, other = await asyncio.gather(here.comes(here.ids[0]), here.comes(here.ids[0]))
        assert {first.connection, other.connection} == {1, 2}
        assert here.announced == [(EventName.MACHINE_CONNECTED, here.ids[0])]

    async def test_a_token_that_became_worthless_meanwhile(self, here: Here) -> None:
        await machines.revoke_token(here.database, here.ids[0])
        assert await here.attempts(here.ids[0]) is machines.AttachFailure.TOKEN_INVALID
        assert await here.presence.of_account(ACCOUNT) == []
        row = await machines.by_id(here.database, here.ids[0])
        assert row is not None
        assert not row.connected
        assert here.announced == []

    async def test_an_old_token_leaves_what_the_machine_was_before(self, here: Here) -> None:
        before = await here.comes(here.ids[0])
        outcome = await here.attempts(here.ids[0], digest("old"))
        assert outcome is machines.AttachFailure.TOKEN_INVALID
        assert await here.presence.of_account(ACCOUNT) == [before]
        assert not before.online  # its socket was closed in favour of the newer one

    async def test_it_comes_with_what_was_stored_a_moment_ago(self, here: Here) -> None:
        row = await machines.by_id(here.database, here.ids[0])
        async with here.database.begin() as transaction:
            await transaction.execute(update(tables.machines).values(event_seq=7, nickname="new"))
        assert row is not None
        state = await here.presence.register(row, TOKEN, hello())
        assert isinstance(state, MachineState)
        assert (state.event_seq, state.nickname) == (7, "new")

    async def test_a_hello_that_is_stored_late_is_not_the_newest_connection(
        self, here: Here
    ) -> None:
        """The machine has given up waiting for its welcome, and connected to another node."""
        row = await machines.by_id(here.database, here.ids[0])
        assert row is not None
        elsewhere = Here(here.database, "elsewhere", here.ids)
        newer = await elsewhere.comes(row.id)
        outcome = await here.presence.register(row, TOKEN, hello())
        assert outcome is machines.AttachFailure.SUPERSEDED
        assert await here.presence.of_account(ACCOUNT) == []
        stored = await machines.by_id(here.database, row.id)
        assert stored is not None
        assert (stored.connected, stored.connection) == (True, newer.connection)
        await elsewhere.presence.close()

    async def test_on_one_node_the_later_hello_is_the_newest_connection(self, here: Here) -> None:
        """Both handshakes were made before either hello was stored."""
        row = await machines.by_id(here.database, here.ids[0])
        assert row is not None
        states = [await here.presence.register(row, TOKEN, hello()) for _ in range(2)]
        assert [isinstance(state, MachineState) and state.connection for state in states] == [1, 2]


class TestReports:
    async def test_figures_alone_are_not_saved_for_a_while(self, here: Here) -> None:
        state = await here.comes(here.ids[0])
        here.presence.update(state, figures(1))
        await here.presence.save()
        assert state.machine is not None
        assert state.machine.free_mem == 1
        assert (await here.saved(state.id)).machine.free_mem == MACHINE.free_mem
        here.now += LONGEST_STALE
        here.presence.update(state, figures(2))
        await here.presence.save()
        assert (await here.saved(state.id)).machine.free_mem == 2

    async def test_a_session_is_saved_with_the_figures(self, here: Here) -> None:
        state = await here.comes(here.ids[0])
        here.presence.update(state, figures(1))
        new = session(status="generating")
        here.presence.update(state, Change(sessions=[new]))
        await here.presence.save()
        saved = await here.saved(state.id)
        assert saved.machine.free_mem == 1
        assert new.id in {item.id for item in saved.sessions}

    @pytest.mark.parametrize("how", ["dropped", "closed"])
    async def test_the_last_figures_are_saved_when_it_goes(self, here: Here, how: str) -> None:
        state = await here.comes(here.ids[0])
        here.now += 20
        here.presence.update(state, figures(1))
        if how == "dropped":
            here.presence.connection_lost(state.id)
            await here.presence.save()
        else:
            await here.presence.close()
        assert (await here.saved(state.id)).machine.free_mem == 1
        async with here.database.read() as transaction:
            seen = await transaction.scalar(
                select(tables.machines.c.last_seen_at).where(tables.machines.c.id == state.id)
            )
        assert seen == int(here.now * 1000)
