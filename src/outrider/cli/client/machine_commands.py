"""`outrider machine …`: what a machine can launch, its terminals and its connection."""

from typing import Annotated

import typer

from outrider.cli.client.arguments import AsJson, Email, MachineName, Yes
from outrider.cli.client.output import confirm, session, user_session
from outrider.cli.client.target_names import find_machine
from outrider.cli.counted import counted
from outrider.cli.printing import print_json, print_table, print_text, show_result, show_table

app = typer.Typer(no_args_is_help=True, help="Machines.")


@app.command()
def show(machine: MachineName, as_json: AsJson = False) -> None:
    """Print a machine's state, and the types of agents that it can launch."""
    with session(as_json=as_json) as client:
        state = find_machine(client, machine).status()
        if as_json:
            print_json(state)
            return
        print_text(
            f"{state.id}  {state.nickname}  {'online' if state.connected else 'offline'}  "
            f"{state.platform}  {state.version}  {counted(len(state.sessions), 'session')}"
        )
        rows = [
            [
                provider.type,
                provider.category,
                provider.display_name,
                provider.error or provider.path or "",
            ]
            for provider in state.available_providers
            if provider.installed
        ]
        print_table(["TYPE", "KIND", "NAME", "PROGRAM"], rows)


@app.command()
def terminals(
    machine: MachineName,
    close: Annotated[
        str | None, typer.Option(metavar="NAME", help="Close this one, with all that runs in it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the named terminals, or close one."""
    with session(as_json=as_json) as client:
        target = find_machine(client, machine)
        if close is not None:
            show_result(target.close_terminal(close), f"{close} is closed", as_json)
            return
        every = target.terminals()
        rows = [[terminal.name, "busy" if terminal.busy else "idle"] for terminal in every]
        show_table({"success": True, "terminals": every}, ["NAME", "STATE"], rows, as_json)


@app.command()
def disconnect(machine: MachineName, email: Email = None, as_json: AsJson = False) -> None:
    """Close a machine's connection; it comes back by itself. Needs a user's login."""
    with user_session(email, as_json=as_json) as client:
        target = find_machine(client, machine)
        show_result(target.disconnect(), f"{target.nickname} is disconnected", as_json)


@app.command()
def revoke(
    machine: MachineName, email: Email = None, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Revoke a machine's token: it has to be set up again. Needs a user's login."""
    confirm(f"Revoke the machine {machine}?", yes=yes, as_json=as_json)
    with user_session(email, as_json=as_json) as client:
        target = find_machine(client, machine)
        show_result(target.revoke(), f"{target.nickname} is revoked", as_json)
