"""The commands that read one session: `outrider status`, `diff`, `files`, `queue` and others.

`ls` and `chat` are in `session_commands`.
"""

import sys
from typing import Annotated

import typer

from outrider.cli.client.arguments import AsJson, Target
from outrider.cli.client.output import ExitCode, UsageError, session
from outrider.cli.client.questions import question_text
from outrider.cli.client.target_names import find_agent
from outrider.cli.counted import counted
from outrider.cli.printing import (
    is_terminal,
    moment,
    print_json,
    print_raw,
    print_table,
    print_text,
    show_result,
    show_table,
    warn,
)
from outrider.contract.commands import AgentState, Directory

Base = Annotated[
    str | None,
    typer.Option(
        metavar="COMMIT",
        help="Compare with this commit, branch or tag; `start`: with "
        "the commit at which the session began. Default: HEAD.",
    ),
]


def status(target: Target, as_json: AsJson = False) -> None:
    """Print what an agent is doing, and what it asks."""
    with session(as_json=as_json) as client:
        state = find_agent(client, target).status()
        show_result(state, _state_text(state), as_json)


def _state_text(state: AgentState) -> str:
    lines = [
        f"{state.session_id}  {state.agent_type}  {state.status}  {state.title or ''}".rstrip(),
        f"Directory  {state.workspace.path if state.workspace else '(none)'}",
    ]
    # ACP agents have their mode and model in both.
    controls = {name for control in state.controls for name in (control.id, control.label)}
    lines += [
        f"{item.label}  {item.value}"
        for item in state.summary_metadata.items
        if not {item.id, item.label} & controls
    ]
    for control in state.controls:
        choices = f"  (of {', '.join(control.options)})" if control.options else ""
        lines.append(f"{control.id}  {control.value}{choices}")
    if state.error:
        lines.append(f"Error  {state.error}")
    if state.pending_action is not None:
        lines.append(f"It asks: {question_text(state.pending_action)}")
    return "\n".join(lines)


def wait(
    target: Target,
    timeout: Annotated[int, typer.Option(min=0, max=60, help="Seconds to wait.")] = 25,
    as_json: AsJson = False,
) -> None:
    """Wait until the agent is idle, asks or has failed; ends with 4 if it is still at work."""
    with session(as_json=as_json) as client:
        waited = find_agent(client, target).wait(timeout=timeout)
        text: str = waited.reason
        if waited.pending_action is not None:
            text += f"\nIt asks: {question_text(waited.pending_action)}"
        show_result(waited, text, as_json)
        if waited.reason == "timeout":
            sys.exit(ExitCode.TIMEOUT)


def approvals(as_json: AsJson = False) -> None:
    """List what the agents of the account ask."""
    with session(as_json=as_json) as client:
        pending = client.approvals.pending()
        if as_json:
            print_json({"approvals": pending})
            return
        if not pending and is_terminal():
            print_text("No agent asks anything")
        for approval in pending:
            place = approval.title or (approval.workspace.path if approval.workspace else "")
            print_text(
                f"{approval.session_id}  {approval.nickname}  {approval.type}  {place}".rstrip()
            )
            print_text("  " + question_text(approval.action).replace("\n", "\n  "))


def diff(target: Target, base: Base = None, as_json: AsJson = False) -> None:
    """Print the changes in the session's directory, as a patch of git."""
    with session(as_json=as_json) as client:
        changes = find_agent(client, target).diff(base=base)
        if as_json:
            print_json(changes)
            return
        print_raw(changes.patch)
        if changes.truncated:
            warn("The patch is cut: it is too long")


def files(
    target: Target,
    path: Annotated[
        str | None, typer.Argument(metavar="PATH", help="In the session's directory.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List a directory of the session, or print a file."""
    with session(as_json=as_json) as client:
        content = find_agent(client, target).files(path)
        if as_json:
            print_json(content)
        elif isinstance(content, Directory):
            rows = [[entry.type, str(entry.size), entry.name] for entry in content.entries]
            print_table(["TYPE", "SIZE", "NAME"], rows)
        elif content.binary:
            raise UsageError(f"{content.path} is a binary file of {content.size} bytes")
        else:
            print_raw(content.text or "")
            if content.truncated:
                warn("The file is cut: it is too long")


def screen(target: Target, as_json: AsJson = False) -> None:
    """Print what the terminal of an agent shows."""
    with session(as_json=as_json) as client:
        shown = find_agent(client, target).screen()
        show_result(shown, shown.text, as_json)


def queue(
    target: Target,
    withdraw: Annotated[
        str | None, typer.Option(metavar="MESSAGE", help="Take this message back, by its id.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the messages that wait for the agent, or take one back."""
    with session(as_json=as_json) as client:
        agent = find_agent(client, target)
        if withdraw is not None:
            taken = agent.withdraw(withdraw)
            show_result(taken, f"{taken.message_id} is taken back", as_json)
            return
        messages = agent.queue()
        rows = [
            [message.message_id, moment(message.created_at), message.text] for message in messages
        ]
        body = {"success": True, "messages": messages}
        show_table(body, ["MESSAGE", "SENT", "TEXT"], rows, as_json)


def debug(target: Target, as_json: AsJson = False) -> None:
    """Print the session's debug bundle, for an issue report; secrets are removed."""
    with session(as_json=as_json) as client:
        bundle = find_agent(client, target).debug()
        show_result(bundle, bundle.text, as_json)


def account(as_json: AsJson = False) -> None:
    """Print the account's plan, its use this month, its limits, and this key."""
    with session(as_json=as_json) as client:
        account = client.account()
        usage, limits = account.usage, account.limits
        calls = "unlimited" if usage.limit is None else usage.limit
        per_key = counted(limits.requests_per_minute_per_key, "request")
        lines = [
            f"{account.id}  plan {account.plan}",
            f"Calls     {usage.calls} in {usage.month} of {calls}",
            f"A minute  {per_key} of a key, {limits.requests_per_minute_per_ip} of an address",
            f"Webhooks  {'unlimited' if limits.webhooks is None else limits.webhooks}",
        ]
        lines += [f"Key       {key.name}: {', '.join(key.scopes)}" for key in account.keys]
        show_result(account, "\n".join(lines), as_json)
