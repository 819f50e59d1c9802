"""`outrider admin account`: what each command prints, changes and refuses.

Holds docs/access.md, "Accounts".
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from outrider.service.accounts import passwords
from tests.cli.operator import Operator
from tests.rig.processes import environment
from tests.rig.waiting import TIMEOUT

EMAIL = "a@example.org"
PASSWORD = "correct horse battery"


class TestCreate:
    def test_it_makes_an_account_with_a_user(self, operator: Operator) -> None:
        made = operator.succeeds("account", "create", "--email", EMAIL, "--plan", "team")
        assert made["accountId"].startswith("acct_")
        assert made["userId"].startswith("user_")
        assert operator.row("SELECT plan FROM accounts") == ("team",)

    @pytest.mark.parametrize(("setting", "plan"), [(None, "enterprise"), ("pro", "pro")])
    def test_the_default_plan_is_a_setting(
        self,
        operator: Operator,
        monkeypatch: pytest.MonkeyPatch,
        setting: str | None,
        plan: str,
    ) -> None:
        if setting is not None:
            monkeypatch.setenv("OUTRIDER_DEFAULT_PLAN", setting)
        operator.succeeds("account", "create", "--email", EMAIL)
        assert operator.row("SELECT plan FROM accounts") == (plan,)

    def test_a_default_plan_that_does_not_exist(
        self, operator: Operator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OUTRIDER_DEFAULT_PLAN", "gold")
        assert "OUTRIDER_DEFAULT_PLAN" in operator.fails("account", "create", "--email", EMAIL)

    @pytest.mark.parametrize("given", ["option", "environment"])
    def test_the_password_is_kept_as_a_hash_alone(
        self, operator: Operator, monkeypatch: pytest.MonkeyPatch, given: str
    ) -> None:
        """OUTRIDER_PASSWORD may stand for --password; only argon2id is kept (SECURITY.md)."""
        arguments = ["account", "create", "--email", EMAIL]
        if given == "option":
            arguments += ["--password", PASSWORD]
        else:
            monkeypatch.setenv("OUTRIDER_PASSWORD", PASSWORD)
        assert operator.succeeds(*arguments).keys() == {"accountId", "userId"}
        (kept,) = operator.row("SELECT password_hash FROM users")
        assert kept.startswith("$argon2id$")
        assert passwords.matches(kept, PASSWORD)
        assert not passwords.matches(kept, "wrong horse")

    @pytest.mark.parametrize("password", ["", "nine char", "password123", "Qwertyuiop1"])
    def test_a_password_that_is_too_short_or_common(
        self, operator: Operator, password: str
    ) -> None:
        arguments = ("account", "create", "--email", EMAIL, "--password", password)
        assert "password" in operator.fails(*arguments, code=2)
        assert operator.succeeds("account", "list") == {"accounts": []}

    def test_without_a_password_and_without_a_terminal_it_gives_a_link(
        self, operator: Operator
    ) -> None:
        before = time.time()
        made = operator.succeeds("account", "create", "--email", EMAIL)
        link = urlsplit(made["passwordLink"])
        assert (link.scheme, link.netloc, link.path) == ("http", "127.0.0.1:8400", "/password")
        assert len(link.fragment) == 43
        assert abs(made["passwordLinkExpiresAt"] / 1000 - before - 86400) < 60
        assert link.fragment.encode() not in operator.database.read_bytes()
        assert operator.row("SELECT password_hash FROM users") == (None,)

    def test_the_link_begins_with_the_public_url(
        self, operator: Operator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OUTRIDER_PUBLIC_URL", "https://outrider.example.com/")
        sentence = operator.says("account", "create", "--email", EMAIL)
        assert "https://outrider.example.com/password#" in sentence
        assert "OUTRIDER_PUBLIC_URL" not in sentence

    @pytest.mark.parametrize("email", [EMAIL, EMAIL.upper(), f" {EMAIL} "])
    def test_an_email_belongs_to_one_user(
        self, operator: Operator, account: str, email: str
    ) -> None:
        assert "exists already" in operator.fails("account", "create", "--email", email)

    @pytest.mark.parametrize(
        "email", ["", "nobody", "a@", "@b", "a b@c", "a@b@c", "a\x1b[2J@b", "a@" + "b" * 256]
    )
    def test_what_is_no_email_is_refused(self, operator: Operator, email: str) -> None:
        assert "not an email" in operator.fails("account", "create", "--email", email, code=2)

    def test_an_unknown_plan_is_refused_with_the_known_ones(self, operator: Operator) -> None:
        sentence = operator.fails("account", "create", "--email", "a@b", "--plan", "gold", code=2)
        assert all(plan in sentence for plan in ("free", "pro", "team", "enterprise"))


class TestListAndShow:
    def test_list_has_every_account_or_that_of_a_user(
        self, operator: Operator, account: str
    ) -> None:
        other = operator.succeeds(
            "account", "create", "--email", "b@example.org", "--plan", "pro", "--password", PASSWORD
        )
        first, second = operator.succeeds("account", "list")["accounts"]
        assert first | {"createdAt": 0, "userId": ""} == {
            "accountId": account,
            "userId": "",
            "email": EMAIL,
            "plan": "enterprise",
            "createdAt": 0,
            "hasPassword": False,
        }
        assert (second["accountId"], second["userId"]) == (other["accountId"], other["userId"])
        assert (second["plan"], second["hasPassword"]) == ("pro", True)
        only = operator.succeeds("account", "list", "--email", "b@example.org")
        assert only == {"accounts": [second]}

    def test_show_has_what_the_account_owns(self, operator: Operator, account: str) -> None:
        operator.succeeds("key", "create", "--account", account, "--name", "k")
        expired = operator.succeeds("key", "create", "--account", account, "--name", "k")
        operator.succeeds("key", "revoke", expired["id"])
        shown = operator.succeeds("account", "show", "--email", EMAIL)
        usage = shown.pop("usage")
        assert shown | {"createdAt": 0, "userId": ""} == {
            "accountId": account,
            "userId": "",
            "email": EMAIL,
            "plan": "enterprise",
            "createdAt": 0,
            "hasPassword": False,
            "machines": 0,
            "keys": 1,
            "webhooks": 0,
            "sessions": 0,
        }
        assert (usage["calls"], usage["limit"]) == (0, None)
        assert "0 machines, 1 key, 0 webhooks" in operator.says(
            "account", "show", "--email", account
        )


class TestChange:
    @pytest.mark.parametrize("given", [["--plan", "free"], ["free"]])
    def test_set_plan_changes_the_plan(
        self, operator: Operator, account: str, given: list[str]
    ) -> None:
        changed = operator.succeeds("account", "set-plan", "--email", EMAIL, *given)
        assert (changed["accountId"], changed["plan"]) == (account, "free")
        assert operator.succeeds("account", "show", "--email", EMAIL)["plan"] == "free"

    @pytest.mark.parametrize("given", [[], ["gold"], ["--plan", "gold"], ["free", "--plan", "pro"]])
    def test_a_plan_that_does_not_exist_is_refused(
        self, operator: Operator, account: str, given: list[str]
    ) -> None:
        operator.fails("account", "set-plan", "--email", EMAIL, *given, code=2)

    def test_password_sets_it_and_ends_the_link(self, operator: Operator, account: str) -> None:
        changed = operator.succeeds("account", "password", "--email", EMAIL, "--password", PASSWORD)
        assert (changed["accountId"], changed["changed"]) == (account, True)
        assert changed["sessionsEnded"] == 0
        assert passwords.matches(operator.row("SELECT password_hash FROM users")[0], PASSWORD)
        assert operator.row("SELECT count(*) FROM password_resets") == (0,), "the old link"

    def test_password_without_a_terminal_gives_a_new_link(
        self, operator: Operator, account: str
    ) -> None:
        """A new one takes the place of the one that `create` gave."""
        given = operator.succeeds("account", "password", "--email", EMAIL)
        assert given["changed"] is False
        assert "/password#" in given["passwordLink"]
        assert operator.row("SELECT count(*) FROM password_resets") == (1,)

    def test_a_common_password_is_refused(self, operator: Operator, account: str) -> None:
        arguments = ("account", "password", "--email", EMAIL, "--password", "password123")
        assert "easy to guess" in operator.fails(*arguments, code=2)

    def test_sessions_are_listed_and_ended(self, operator: Operator, account: str) -> None:
        listed = operator.succeeds("account", "sessions", "--email", EMAIL)
        assert (listed["accountId"], listed["sessions"]) == (account, [])
        ended = operator.succeeds("account", "sessions", "--email", EMAIL, "--end-all")
        assert ended["ended"] == 0

    def test_delete_removes_all_that_the_account_owns(
        self, operator: Operator, account: str
    ) -> None:
        operator.succeeds("key", "create", "--account", account, "--name", "k")
        deleted = operator.succeeds("account", "delete", "--email", EMAIL, "--yes")
        assert (deleted["accountId"], deleted["deleted"]) == (account, True)
        assert operator.succeeds("account", "list") == {"accounts": []}
        assert operator.row("SELECT count(*) FROM api_keys") == (0,)
        operator.succeeds("account", "create", "--email", EMAIL)

    @pytest.mark.parametrize("typed", ["", "n\n", "y\n"])
    def test_nothing_is_deleted_without_a_terminal_to_ask_on(
        self, operator: Operator, account: str, typed: str
    ) -> None:
        sentence = operator.fails("account", "delete", "--email", EMAIL, code=2, typed=typed)
        assert account in sentence
        assert "--yes" in sentence
        assert operator.row("SELECT count(*) FROM accounts") == (1,)


@pytest.mark.parametrize("command", ["show", "set-plan free", "password", "sessions", "delete"])
def test_an_account_that_does_not_exist_is_named(
    operator: Operator, account: str, command: str
) -> None:
    name, *arguments = command.split()
    sentence = operator.fails("account", name, "--email", "b@example.org", *arguments)
    assert "b@example.org" in sentence


class Terminal:
    """A command on a terminal of its own, and somebody who types there."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._shown = ""

    async def shows(self, text: str) -> None:
        """Wait until the terminal shows a text, after what it has shown before."""
        assert self._process.stdout is not None
        async with asyncio.timeout(3 * TIMEOUT):
            while text not in self._shown:
                data = await self._process.stdout.read(4096)
                assert data, f"it ended after: {self._shown}"
                self._shown += data.decode()
        self._shown = self._shown.partition(text)[2]

    async def types(self, text: str) -> None:
        """Type a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n".encode())
        await self._process.stdin.drain()

    async def ends(self) -> int:
        """Wait for the end of the command; return its exit code."""
        async with asyncio.timeout(TIMEOUT):
            await self._process.communicate()
            return await self._process.wait()


@asynccontextmanager
async def terminal(data_dir: Path, *arguments: str) -> AsyncIterator[Terminal]:
    """Run `outrider admin` on a terminal."""
    command = [sys.executable, "-m", "outrider", "admin", *arguments]
    spawn = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        spawn,
        *command,
        env=environment(data_dir),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield Terminal(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


class TestOnATerminal:
    async def test_it_asks_twice_until_the_password_is_good(
        self, operator: Operator, tmp_path: Path
    ) -> None:
        arguments = ("account", "create", "--email", EMAIL)
        async with terminal(tmp_path / "data", *arguments) as person:
            for typed, again, complaint in (
                ("password123", "password123", "too easy to guess"),
                (PASSWORD, "another horse battery", "do not match"),
            ):
                await person.shows("Password: ")
                await person.types(typed)
                await person.shows("The same again: ")
                await person.types(again)
                await person.shows(complaint)
            await person.shows("Password: ")
            await person.types(PASSWORD)
            await person.shows("The same again: ")
            await person.types(PASSWORD)
            await person.shows(f"with the user {EMAIL}")
            assert await person.ends() == 0
        assert passwords.matches(operator.row("SELECT password_hash FROM users")[0], PASSWORD)

    @pytest.mark.parametrize(("answer", "left"), [("n", 1), ("y", 0)])
    async def test_it_asks_before_it_deletes(
        self, operator: Operator, account: str, tmp_path: Path, answer: str, left: int
    ) -> None:
        async with terminal(tmp_path / "data", "account", "delete", "--email", EMAIL) as person:
            await person.shows("[y/N]: ")
            await person.types(answer)
            await person.ends()
        assert operator.row("SELECT count(*) FROM accounts") == (left,)
