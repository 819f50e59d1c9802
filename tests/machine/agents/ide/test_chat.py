"""How the rows of a page become messages whose ids stay."""

from pathlib import Path

from outrider.machine.agents.ide.chat import IdeChat, Row
from outrider.machine.link.journal import Journal
from outrider.machine.sessions.chat_log import ChatLog
from outrider.machine.sessions.record import SessionRecord


def said(key: str, content: str) -> Row:
    return Row(key=key, role="user", content=content)


def answered(key: str, content: str) -> Row:
    return Row(key=key, role="assistant", content=content)


def chat(folder: Path, journal: Journal) -> IdeChat:
    return IdeChat("session_1", "alpha", ChatLog(folder / "alpha.jsonl", lambda: 1), journal)


def journal_of(folder: Path) -> Journal:
    journal = Journal(folder / "journal.db")
    journal.save_session(
        SessionRecord(
            id="session_1", kind="ide", type="faulty", name="Faulty", path="/", model=None,
            created_at=1, last_activity_at=1,
        )
    )  # fmt: skip
    return journal


def contents(of: IdeChat) -> list[str]:
    return [message.content for message in of.messages()]


async def test_a_page_that_has_lost_its_newest_messages_gives_their_keys_again(
    tmp_path: Path,
) -> None:
    journal = journal_of(tmp_path)
    ide_chat = chat(tmp_path, journal)
    kept = [said("0", "hello"), answered("1", "Hello.")]
    ide_chat.merge([*kept, said("2", "lost"), answered("3", "Yes.")])
    ide_chat.merge(kept)  # the page was loaded again
    ide_chat.expect("msg_next", "next")
    now = [*kept, said("2", "next"), answered("3", "No."), said("4", "more")]
    for _ in range(2):
        ide_chat.merge(now)
        assert ide_chat.has_arrived
        assert contents(ide_chat) == ["hello", "Hello.", "lost", "Yes.", "next", "No.", "more"]
    assert ide_chat.messages()[4].id == "msg_next"
    before = ide_chat.messages()
    ide_chat.save()
    again = chat(tmp_path, journal)
    again.merge(now)
    assert again.messages() == before
    journal.close()


async def test_a_message_that_a_person_changes_stays_itself(tmp_path: Path) -> None:
    journal = journal_of(tmp_path)
    ide_chat = chat(tmp_path, journal)
    ide_chat.merge([said("a", "helo"), answered("b", "Yes."), said("c", "and")])
    ids = [message.id for message in ide_chat.messages()]
    ide_chat.merge([said("a", "hello"), answered("b", "Yes."), said("c", "and")])
    assert contents(ide_chat) == ["hello", "Yes.", "and"]
    assert [message.id for message in ide_chat.messages()] == ids
    journal.close()
