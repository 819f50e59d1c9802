"""The accessible names that every release keeps, by route: people and their tests use them."""

from typing import Final, NamedTuple

from tests.dashboard.accounts import FurnishedAccount


class Name(NamedTuple):
    """An element, by its role and name."""

    role: str
    name: str


LOGGED_OUT: Final = {
    "/login": [Name("textbox", "Email"), Name("button", "Log in")],
    "/password": [Name("button", "Set the password")],
    "/docs": [Name("heading", "Errors")],
}

ROUTES: Final = {
    "/": [
        Name("heading", "Sessions"),
        Name("button", "Launch"),
        Name("searchbox", "Filter sessions"),
        Name("combobox", "Status"),
        Name("combobox", "Machine"),
        Name("link", "Fix the build"),
        Name("link", "house-agent"),
    ],
    "/inbox": [
        Name("heading", "Inbox"),
        Name("button", "Approve"),
        Name("button", "Reject"),
        Name("button", "More"),
    ],
    "/machines": [
        Name("heading", "Machines"),
        Name("button", "Connect a machine"),
        Name("link", "workbench"),
        Name("link", "old laptop"),
    ],
    "/machines/{machine}": [
        Name("heading", "workbench"),
        Name("button", "Disconnect"),
        Name("button", "Revoke"),
        Name("button", "build"),
    ],
    "/sessions/{waiting_approval}": [
        Name("heading", "Fix the build"),
        Name("log", "Chat"),
        Name("textbox", "Message"),
        Name("tab", "Chat"),
        Name("tab", "Terminal"),
        Name("tab", "Debug"),
        Name("button", "Stop"),
        Name("button", "Approve"),
        Name("button", "Reject"),
        Name("button", "More"),
        Name("button", "Queue"),
        Name("button", "Interrupt and send"),
    ],
    "/sessions/{generating}": [
        Name("button", "Queue"),
        Name("button", "Interrupt"),
        Name("button", "Interrupt and send"),
    ],
    "/sessions/{idle}": [
        Name("heading", "house-agent"),
        Name("button", "Send"),
        Name("combobox", "Mode"),
    ],
    "/sessions/{idle}?tab=debug": [Name("tab", "Debug")],
    "/history": [
        Name("heading", "History"),
        Name("searchbox", "Search ended sessions"),
        Name("link", "Rename the module"),
        Name("button", "Resume"),
    ],
    "/webhooks": [Name("heading", "Webhooks"), Name("button", "New webhook")],
    "/webhooks/{webhook}": [
        Name("button", "Test"),
        Name("button", "Pause"),
        Name("button", "Rotate secret"),
        Name("button", "Delete"),
        Name("button", "Resend"),
    ],
    "/device": [Name("heading", "Connect a machine"), Name("textbox", "Code")],
    "/device?code={device}": [Name("button", "Approve"), Name("button", "Reject")],
    "/no-such-page": [
        Name("heading", "There is no such page"),
        Name("link", "Go to the sessions"),
        Name("navigation", "Main"),
    ],
    "/account": [
        Name("heading", "Account"),
        Name("heading", "API keys"),
        Name("button", "Revoke"),
        Name("button", "Sign out"),
    ],
}
"""For a furnished account: `{…}` stands for the id of its machine or of a session."""


def address(route: str, account: FurnishedAccount) -> str:
    """Return the path of a route in a account."""
    ids = {"machine": account.machine.id, "webhook": account.webhook, "device": account.device}
    return route.format(**ids, **account.targets)
