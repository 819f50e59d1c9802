"""The `outrider` command: its subcommands and what each starts.

Imports are inside the commands, so that each command starts fast and loads only what it needs.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from outrider import __version__
from outrider.cli import client
from outrider.cli.environment import warn_of_unknown
from outrider.cli.logs import set_up_logs
from outrider.cli.standard_output import guarded_output

app = typer.Typer(
    name="outrider",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Drive coding agents on many machines over one REST API.",
)


def _version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def main(
    context: typer.Context,
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Drive coding agents on many machines over one REST API."""
    set_up_logs()
    if context.invoked_subcommand != worker.__name__:  # the supervisor has already warned
        warn_of_unknown()


@app.command()
def up(
    no_browser: Annotated[
        bool,
        typer.Option(
            "--no-browser",
            help="Do not open the dashboard. Without a display, in CI and where the output is no "
            "terminal it is not opened anyway.",
        ),
    ] = False,
) -> None:
    """Start the service and this machine's agent; set both up on the first start."""
    from outrider.cli.running import run_until_stopped, service_settings
    from outrider.cli.up import up as start

    settings = service_settings()
    run_until_stopped(lambda stop: start(settings, stop, browser=not no_browser))


@app.command()
def serve(
    workers: Annotated[
        int, typer.Option(min=1, max=256, help="The number of processes that serve the port.")
    ] = 1,
    worker_ports: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65000,
            help="Worker 1 also listens on this port, worker 2 on the next one, and so on: "
            "for endpoints of one process, such as /metrics.",
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option(help="A certificate (PEM, with its chain): serve https. SIGHUP reloads it."),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="Its private key, if it is not in the same file.")
    ] = None,
) -> None:
    """Start the service."""
    from outrider.cli.running import run_until_stopped, service_settings

    # In the environment, because workers read their settings there.
    for name, path in (("OUTRIDER_TLS_CERT", tls_cert), ("OUTRIDER_TLS_KEY", tls_key)):
        if path is not None:
            os.environ[name] = str(path.absolute())
    settings = service_settings()
    if workers > 1:
        from outrider.cli.workers import supervise

        run_until_stopped(lambda stop: supervise(settings, workers, worker_ports, stop))
        return

    from outrider.cli.running import on_hangup
    from outrider.service.components import Options
    from outrider.service.operations.tls import ServerCertificate
    from outrider.service.server import listen, listen_for_metrics, run_service
    from outrider.tracing import SERVICE, tracing_from_environment

    async def start(stop: asyncio.Event) -> None:
        certificate = ServerCertificate.of(settings)
        if certificate is not None:
            on_hangup(certificate.reload)
        async with tracing_from_environment(SERVICE) as tracing:
            # Before the database is opened: a taken port should not migrate it.
            listener = listen(settings)
            host, port = listener.getsockname()[:2]
            await run_service(
                settings,
                [listener, *listen_for_metrics(settings)],
                stop,
                lambda: typer.echo(
                    f"Outrider {__version__} listens on {settings.scheme}://{host}:{port}"
                ),
                options=Options(tracing=tracing),
                certificate=certificate,
            )

    run_until_stopped(start)


@app.command(hidden=True)
def worker(number: int, descriptors: list[int]) -> None:
    """Run one process of `serve --workers`, on listening sockets that the supervisor opened."""
    from outrider.cli.running import service_settings
    from outrider.cli.workers import work

    work(service_settings(), number, descriptors)


@app.command()
def daemon(
    install: Annotated[
        bool, typer.Option("--install", help="Write a systemd user unit for it instead.")
    ] = False,
    uninstall: Annotated[bool, typer.Option("--uninstall", help="Remove that unit.")] = False,
) -> None:
    """Start this machine's agent; run `outrider setup` first."""
    from outrider.cli.running import daemon_settings, fail, run_until_stopped

    settings = daemon_settings()
    if install or uninstall:
        from outrider.cli import systemd_unit
        from outrider.contract.errors import OutriderError

        if install and uninstall:
            fail("Give one of --install and --uninstall", 2)
        try:
            file = systemd_unit.install(settings) if install else systemd_unit.uninstall()
        except OutriderError as error:
            fail(str(error))
        name = systemd_unit.NAME
        typer.echo(
            f"{file} is written. To start the machine agent now and at each login:\n\n"
            f"  systemctl --user daemon-reload && systemctl --user enable --now {name}\n\n"
            "To run it while nobody is logged in:\n\n  loginctl enable-linger"
            if install
            else f"{file} is removed. If the machine agent still runs:\n\n"
            f"  systemctl --user disable --now {name}"
        )
        return

    from outrider.machine.app import run_daemon
    from outrider.tracing import MACHINE_AGENT, tracing_from_environment

    async def start(stop: asyncio.Event) -> None:
        async with tracing_from_environment(MACHINE_AGENT) as tracing:
            await run_daemon(settings, stop, tracing=tracing)

    run_until_stopped(start)


@app.command()
def setup(
    server: Annotated[str, typer.Option(help="The service's address, as in https://host.")],
    code: Annotated[
        str | None,
        typer.Option(help="A one-time code. Default: a user approves this machine in a browser."),
    ] = None,
    nickname: Annotated[str | None, typer.Option(help="A name for this machine.")] = None,
) -> None:
    """Enroll this machine with a service."""
    from outrider.cli.running import daemon_settings, fail
    from outrider.contract.enrollment import DeviceAuthorization
    from outrider.contract.errors import OutriderError
    from outrider.machine.enrollment import enroll, enroll_by_approval

    def show(authorization: DeviceAuthorization) -> None:
        typer.echo(
            "To let this machine into your account, open\n\n"
            f"    {authorization.verification_uri}\n\n"
            f"and enter the code    {authorization.user_code}\n\n"
            f"Waiting up to {authorization.expires_in // 60} minutes for the approval; "
            "Ctrl-C cancels."
        )

    settings = daemon_settings()
    try:
        if code is None:
            enrolled = enroll_by_approval(settings, server, nickname, show=show)
        else:
            enrolled = enroll(settings, server, code, nickname)
    except OutriderError as error:
        fail(str(error))
    except KeyboardInterrupt:
        fail("Cancelled; nothing has changed on this machine", 130)
    typer.echo(
        f"This machine is enrolled as {enrolled.nickname!r} ({enrolled.daemon_id}).\n"
        "Start its agent with: outrider daemon"
    )


@app.command()
def backup(
    file: Annotated[Path, typer.Argument(help="The file to write.", dir_okay=False)],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Back up the service's SQLite database and secret key; the service may be running."""
    from outrider.cli import backup as commands

    commands.create(file, overwrite=force, as_json=as_json)


@app.command()
def restore(
    file: Annotated[Path, typer.Argument(help="A file of `outrider backup`.", dir_okay=False)],
    force: Annotated[
        bool, typer.Option("--force", help="Restore over present data, which is renamed.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Restore a backup; stop the service first."""
    from outrider.cli import backup as commands

    commands.restore(file, overwrite=force, as_json=as_json)


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Check this machine and its service, and say what to do; ends with 1 if a check fails."""
    from outrider.cli.doctor.command import doctor as examine

    examine(as_json=as_json)


@app.command()
def upgrade(
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Ask the package index of --index whether there is a newer release, and compare "
            "the versions of the service and its machines. Ends with 0: none; 1: there is one; 2: "
            "not known.",
        ),
    ] = False,
    index: Annotated[
        str | None,
        typer.Option(
            help="A package index that has Outrider. Without it none is asked: Outrider is not "
            "published in one."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say how to upgrade Outrider; nothing is installed, no server is contacted without --check."""
    from outrider.cli.upgrade import command

    if check:
        command.check(index=index, as_json=as_json)
    command.show(index=index, as_json=as_json)


@app.command()
def uninstall() -> None:
    """Say what Outrider keeps on this machine and how to remove it; nothing is removed."""
    from outrider.cli.uninstall import steps

    for number, (sentence, commands) in enumerate(steps(), 1):
        typer.echo(f"{number}. {sentence}")
        for command in commands:
            typer.echo(f"     {command}")


@app.command()
def mcp() -> None:
    """Serve the tools of a service to an agent (MCP) over standard input and output.

    OUTRIDER_URL and OUTRIDER_API_KEY say which service, and with which key; without them,
    those that `outrider login` has stored.
    """
    from outrider.cli.client.credentials import load
    from outrider.cli.running import fail
    from outrider.cli.running import run as run_loop
    from outrider.contract.errors import OutriderError

    try:
        url, key = load()
    except OutriderError as error:
        fail(str(error))

    from outrider.cli.mcp_stdio import serve as serve_stdio

    run_loop(serve_stdio(url, key))


def run() -> None:
    """Run the command line."""
    try:
        with guarded_output():
            _run()
    except ModuleNotFoundError as error:
        from outrider.cli.running import fail

        package = (error.name or "").partition(".")[0]
        if package in ("", "outrider"):
            raise
        fail(
            f"The package {package} is not installed. An installation of the machine agent alone "
            "has no service: install all of Outrider for this command (docs/install.md)"
        )


def _run() -> None:
    command = next((word for word in sys.argv[1:] if not word.startswith("-")), None)
    if command in (None, "admin"):  # other commands do not load the service for it
        from outrider.cli import admin

        app.add_typer(admin.app, name="admin")
    if command in (None, "providers"):
        from outrider.cli import providers

        app.add_typer(providers.app, name="providers")
    if command is None or command in client.COMMANDS:
        client.register(app)
    app(prog_name="outrider")
