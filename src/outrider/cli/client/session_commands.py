"""`outrider ls`, `launch`, `send`, `ask`, `chat`, `approve`, `stop`, `run` and `login`."""

import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from outrider.cli.client import credentials
from outrider.cli.client.arguments import AsJson, MachineName, MachineOption, Target
from outrider.cli.client.output import ExitCode, UsageError, fail, session
from outrider.cli.client.questions import chosen_option, question_line, question_text
from outrider.cli.client.target_names import find_agent, find_machine
from outrider.cli.printing import (
    console,
    is_terminal,
    moment,
    print_json,
    print_table,
    print_text,
    show_result,
    warn,
)
from outrider.contract.commands import Chat
from outrider.contract.errors import OutriderError
from outrider.contract.events import EventName
from outrider.contract.resources import Message, Session
from outrider.contract.text import escaped_lines
from outrider.sdk import (
    Agent,
    ApprovalRequired,
    Delta,
    Machine,
    NewWorktree,
    Outrider,
    PermissionDenied,
)

if TYPE_CHECKING:
    from rich.console import Console

Words = Annotated[list[str], typer.Argument(metavar="TEXT", help="The message.")]


def ls(
    ended: Annotated[
        bool, typer.Option("--ended", help="The sessions that have ended, the newest first.")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(min=1, max=1000, help="How many sessions. Default: 20 ended ones, else all."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the running sessions with what they ask, and the machines that have none."""
    with session(as_json=as_json) as client:
        machines = client.machines.list(state="all")
        try:
            sessions = client.sessions.list(
                state="ended" if ended else "running", limit=limit or (20 if ended else 1000)
            )
        except PermissionDenied:  # the key may only see machines
            sessions = []
        if as_json:
            print_json({"daemons": [machine.daemon for machine in machines], "sessions": sessions})
        elif ended:
            head = ["SESSION", "MACHINE", "TYPE", "ENDED", "REASON", "DIRECTORY", "TITLE"]
            print_table(head, _session_rows(sessions, machines))
        else:
            _list_running(sessions, machines)


def _session_rows(sessions: Sequence[Session], machines: Sequence[Machine]) -> list[list[str]]:
    by_id = {machine.id: machine for machine in machines}
    rows = []
    for row in sessions:
        machine = by_id.get(row.target_id.partition(":")[0])
        state: list[str] = [row.status]
        if row.ended_at is not None:
            state = [moment(row.ended_at), row.end_reason or ""]
        elif machine is not None and not machine.connected:
            state = ["offline"]  # what an agent does there is not known
        nickname, place = machine.nickname if machine else "", row.workspace
        title = row.title or ""
        rows.append([row.id, nickname, row.type, *state, place.path if place else "", title])
    return rows


def _list_running(sessions: Sequence[Session], machines: Sequence[Machine]) -> None:
    rows = _session_rows(sessions, machines)
    busy = {session.target_id.partition(":")[0] for session in sessions}
    rows += [
        ["", machine.nickname, "", "online" if machine.connected else "offline", "", ""]
        for machine in machines
        if machine.id not in busy
    ]
    asking = [(session, session.pending_action) for session in sessions]
    if not is_terminal():
        for row, (_, action) in zip(rows, asking, strict=False):
            if action is not None:
                row.append(question_line(action))
    print_table(["SESSION", "MACHINE", "TYPE", "STATUS", "DIRECTORY", "TITLE"], rows)
    if is_terminal():
        for session, action in asking:
            if action is not None:
                print_text(f"{session.id} asks: {question_text(action)}\n")


def launch(  # noqa: PLR0917  # typer makes options of them
    type: Annotated[str, typer.Argument(metavar="TYPE", help="Such as claude-code.")],  # noqa: A002
    dir: Annotated[  # noqa: A002
        str | None, typer.Option(help="The directory on the machine; the home directory if none.")
    ] = None,
    on: MachineOption = None,
    model: Annotated[
        str | None, typer.Option(help="The model, by the agent's name for it.")
    ] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="SESSION", help="Continue this ended session.")
    ] = None,
    worktree: Annotated[
        str | None,
        typer.Option(metavar="BRANCH", help="In a git worktree of its own, with this branch."),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(metavar="COMMIT", help="Where a new branch begins. Default: HEAD."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Start an agent; prints the session id."""
    with session(as_json=as_json) as client:
        if base is not None and worktree is None:
            raise UsageError("--base says where the branch of a worktree begins: give --worktree")
        branch = None if worktree is None else NewWorktree(branch=worktree, base=base)
        machine = find_machine(client, on)
        agent = machine.launch(type, dir=dir, model=model, resume=resume, worktree=branch)
        show_result(agent.launched, agent.session_id or agent.id, as_json)


def send(
    target: Target,
    text: Words,
    delivery: Annotated[
        Literal["queue", "interrupt", "reject"],
        typer.Option(help="What to do while the agent is generating."),
    ] = "queue",
    as_json: AsJson = False,
) -> None:
    """Send a message, and return once the agent has it."""
    with session(as_json=as_json) as client:
        accepted = find_agent(client, target).send(" ".join(text), delivery=delivery)
        waits = "waits until the agent has finished its turn"
        line = f"{accepted.message_id} {waits if accepted.queued else 'sent'}"
        show_result(accepted, line, as_json)


def ask(
    target: Target,
    text: Words,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait for the reply.")] = 600,
    as_json: AsJson = False,
) -> None:
    """Send a message, and print the reply."""
    with session(as_json=as_json) as client:
        agent = find_agent(client, target)
        try:
            if is_terminal() and not as_json:
                _show_live(agent, " ".join(text), timeout)
                if agent.status().status == "error":  # what failed has been shown
                    sys.exit(ExitCode.REFUSED)
                return
            reply = agent.ask(" ".join(text), timeout=timeout)
        except ApprovalRequired as question:
            advice = f"`outrider approve {target}` or `outrider reject {target}`"
            asked = str(question)
            if question.action is not None:
                asked = f"The agent asks: {question_text(question.action)}"
            sentence = f"{asked}\nAnswer with {advice}; --option N chooses an option"
            raise ApprovalRequired(sentence, action=question.action) from question
        if as_json:
            # As the API's response to a wait, with the text.
            fields = {"reason": reply.status, "cursor": reply.cursor, "status": reply.status}
            rest = {"messages": reply.messages, "pendingAction": None, "text": reply.text}
            print_json(fields | rest)
        elif reply.text:
            print_text(reply.text)
        if reply.status == "error":
            if not as_json:
                warn(f"The turn failed: {reply.error}")
            sys.exit(ExitCode.REFUSED)


def _show_live(agent: Agent, text: str, timeout: float) -> None:
    """Print a reply as it comes, its Markdown rendered, with a spinner until it begins."""
    from rich.live import Live
    from rich.markdown import Markdown
    from rich.spinner import Spinner

    waiting = Spinner("dots", "the agent works")
    texts: dict[str, str] = {}
    screen = console()
    with Live(waiting, console=screen, refresh_per_second=10, transient=True) as live:
        for part in agent.stream(text, timeout=timeout):
            if isinstance(part, Delta):
                before = texts.get(part.message_id, "") if part.op == "append" else ""
                texts[part.message_id] = before + part.text
                # A text that is taller than the screen cannot be drawn again: show its end.
                lines = escaped_lines(texts[part.message_id]).splitlines()
                live.update(Markdown("\n".join(lines[-max(1, screen.height - 2) :])))
            else:
                live.update(waiting)
                _show(part, screen)


def _show(message: Message, screen: "Console") -> None:
    """Print a message for a person.

    Args:
        screen: where a `Live` is shown, its own console, which erases it first.
    """
    from rich.markdown import Markdown
    from rich.text import Text

    content = escaped_lines(message.content)
    if message.role == "user":
        screen.print(Text(f"> {content}", "bold"))
    elif message.kind == "text":
        screen.print(Markdown(content))
    else:
        if message.kind == "tool_call" and message.tool is not None:
            content = escaped_lines(message.tool.title)
        screen.print(Text(f"[{message.kind}] {content}", "dim"))


def chat(
    target: Target,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is said from now on.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, max=1000, help="Only so many messages, the last ones.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the chat, also of a session that has ended."""
    with session(as_json=as_json) as client:
        agent = find_agent(client, target, or_ended=True)
        if not follow:
            read = agent.chat(limit=limit)
            if as_json:
                print_json(read)
            else:
                for message in read.messages:
                    _print_message(message, as_json=False)
        else:
            _follow(client, agent, limit, as_json)


def _follow(client: Outrider, agent: Agent, limit: int | None, as_json: bool) -> None:
    """Print the messages so far, then each that is completed, until the session ends."""
    first = agent.chat(limit=limit)
    start = first.messages[0].index if first.messages else 0
    shown: set[str] = set()
    last: str | None = None

    def show(chat: Chat) -> None:
        nonlocal last
        for message in chat.messages:
            if message.index < start:  # before the last `limit` ones
                continue
            # An agent may still write its last message: that comes when it is complete.
            is_open = message is chat.messages[-1] and message.role != "user"
            if message.id in shown or (is_open and chat.status == "generating"):
                continue
            shown.add(message.id)
            last = message.id
            _print_message(message, as_json=as_json)

    show(first)
    if first.state == "ended":
        return
    # The chat is read again at each event instead of printing the event: a message in an event
    # may be cut, and one that is reported twice is printed once.
    names = [EventName.CHAT_MESSAGE, EventName.GENERATING_COMPLETED, EventName.SESSION_ENDED]
    exact = client.agent(first.id, agent_type=agent.agent_type)

    def read_on() -> None:
        show(exact.chat(after=last))

    for event in client.events(names, target=first.id, on_open=read_on):  # what was said meanwhile
        read_on()
        if event.event == EventName.SESSION_ENDED:
            return


def _print_message(message: Message, *, as_json: bool) -> None:
    if as_json:
        print_json(message)
    elif is_terminal():
        _show(message, console())
    else:
        kind = message.role if message.kind == "text" else message.kind
        print_text(f"{kind}: {message.content}")


Option = Annotated[
    str | None,
    typer.Option(metavar="OPTION", help="The option to choose: its number, id or label."),
]


def approve(target: Target, option: Option = None, as_json: AsJson = False) -> None:
    """Approve what the agent asks."""
    _answer("approve", target, option, as_json)


def reject(target: Target, option: Option = None, as_json: AsJson = False) -> None:
    """Reject what the agent asks."""
    _answer("reject", target, option, as_json)


def _answer(
    action: Literal["approve", "reject"], target: str, option: str | None, as_json: bool
) -> None:
    with session(as_json=as_json) as client:
        agent = find_agent(client, target)
        # With the id of this question, another one that comes meanwhile is not answered.
        asked = agent.status().pending_action
        chosen = None if asked is None else chosen_option(asked, action, option)
        resolve = agent.approve if action == "approve" else agent.reject
        resolved = resolve(
            action_id=None if asked is None else asked.id,
            option_id=option if chosen is None else chosen.id,
        )
        done = "Approved" if action == "approve" else "Rejected"
        labels = {} if asked is None else {option.id: option.label for option in asked.options}
        text = f"{done}: {labels.get(resolved.option_id, resolved.option_id)}"
        if asked is not None:
            text = f"{question_text(asked)}\n{text}"
        show_result(resolved, text, as_json)


def interrupt(target: Target, as_json: AsJson = False) -> None:
    """Stop the agent's current turn."""
    with session(as_json=as_json) as client:
        interrupted = find_agent(client, target).interrupt()
        show_result(interrupted, interrupted.status, as_json)


def stop(
    target: Target,
    remove_worktree: Annotated[
        bool,
        typer.Option("--remove-worktree", help="Remove its git worktree too, without changes."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Stop the session, leaving nothing of it running."""
    with session(as_json=as_json) as client:
        stopped = find_agent(client, target).stop(remove_worktree=remove_worktree)
        show_result(stopped, "\n".join(stopped.stopped), as_json)


def run(
    machine: MachineName,
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="-- COMMAND", help="One word is a shell line; several are quoted each."
        ),
    ],
    cwd: Annotated[str | None, typer.Option(help="The directory on the machine.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run a shell command on a machine; ends with its exit code."""
    line = command[0] if len(command) == 1 else shlex.join(command)
    with session(as_json=as_json) as client:
        done = find_machine(client, machine).run(line, cwd=cwd)
        if as_json:
            print_json(done)
        else:
            sys.stdout.write(done.output)
            sys.stdout.flush()
    sys.exit(done.exit_code)


def login(
    server: Annotated[str, typer.Option(help="The address of the service: https://host.")],
    as_json: AsJson = False,
) -> None:
    """Keep an API key for the other commands; it is read from a prompt or standard input."""
    if sys.stdin.isatty():
        key = typer.prompt("API key", hide_input=True, err=True).strip()
    else:
        key = sys.stdin.readline().strip()
    try:
        if not key:
            raise UsageError("There is no key: give one at the prompt or on standard input")
        with Outrider(server, key) as client:
            account = client.account()
        path = credentials.save(server, key)
    except OutriderError as error:
        fail(error, as_json=as_json)
    text = f"Logged in at {server} (account {account.id}); the key is in {path}"
    show_result(account, text, as_json)
