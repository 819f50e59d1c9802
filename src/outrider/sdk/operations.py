"""The endpoints of the API that the client calls: method, path, and the type of the response.

`tests/sdk/test_operations.py` compares them with the endpoint table, in both directions.
"""

from typing import Any, Final, Generic, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from outrider.contract.account import Account
from outrider.contract.commands import (
    Accepted,
    AgentState,
    Changes,
    Chat,
    ChatDebugged,
    Files,
    Interrupted,
    Launched,
    Queue,
    Resolved,
    Screen,
    Stopped,
    TerminalClosed,
    TerminalList,
    TerminalOutput,
    Withdrawn,
    WorktreeRemoved,
)
from outrider.contract.outcomes import Deleted, Done
from outrider.contract.resources import ApprovalList, DaemonList, DaemonStatus, SessionPage
from outrider.contract.structs import Wire
from outrider.contract.waiting import Waited
from outrider.contract.webhooks import (
    Delivered,
    DeliveryDetails,
    DeliveryList,
    Replayed,
    Webhook,
    WebhookList,
    WebhookWithSecret,
)

T = TypeVar("T")


class SessionToken(Wire, kw_only=True):
    """What the client needs of the response to a login."""

    token: str
    """The session's token, for `Authorization: Bearer`."""


class Operation(NamedTuple, Generic[T]):
    """An endpoint.

    Attributes:
        method: the HTTP method.
        path: the path below `/api/v1`, with its parameters in braces.
        response: the type of the body of a successful response.
    """

    method: str
    path: str
    response: type[T]

    def url(self, **parameters: str) -> str:
        """Return the path with these parameters.

        Raises:
            ValueError: a parameter is empty, or would lead to another path.
        """
        for name, value in parameters.items():
            # Clients and proxies normalize such a path, and the request would reach another one.
            if value in {"", ".", ".."}:
                raise ValueError(f"{value!r} is no {name}")
        quoted = {name: quote(value, ":") for name, value in parameters.items()}
        return self.path.format_map(quoted)

    def decode(self, body: bytes) -> T:
        """Return the body of a successful response.

        Raises:
            msgspec.DecodeError: it is of another form.
        """
        return msgspec.json.decode(body, type=self.response)


LIST_MACHINES: Final = Operation("GET", "/daemons", DaemonList)
MACHINE_STATUS: Final = Operation("GET", "/daemons/{daemonId}/status", DaemonStatus)
COMMAND: Final = Operation("POST", "/daemons/{daemonId}/command", dict[str, Any])
RUN: Final = Operation("POST", "/daemons/{daemonId}/terminal", TerminalOutput)
LIST_TERMINALS: Final = Operation("GET", "/daemons/{daemonId}/terminals", TerminalList)
CLOSE_TERMINAL: Final = Operation("DELETE", "/daemons/{daemonId}/terminals/{name}", TerminalClosed)
DISCONNECT: Final = Operation("POST", "/daemons/{daemonId}/disconnect", Done)
REVOKE: Final = Operation("POST", "/daemons/{daemonId}/revoke", Done)
MACHINE_SESSIONS: Final = Operation("GET", "/daemons/{daemonId}/sessions", SessionPage)
LIST_SESSIONS: Final = Operation("GET", "/sessions", SessionPage)
LIST_APPROVALS: Final = Operation("GET", "/approvals", ApprovalList)

LAUNCH: Final = Operation("POST", "/shortcuts/{daemonId}/launch", Launched)
STOP: Final = Operation("POST", "/shortcuts/{daemonId}/stop", Stopped)
SEND: Final = Operation("POST", "/shortcuts/{ideId}/chat", Accepted)
READ_CHAT: Final = Operation("GET", "/shortcuts/{ideId}/chat", Chat)
WAIT: Final = Operation("GET", "/shortcuts/{ideId}/wait", Waited)
STATUS: Final = Operation("GET", "/shortcuts/{ideId}/status", AgentState)
ANSWER: Final = Operation("POST", "/shortcuts/{ideId}/approve", Resolved)
INTERRUPT: Final = Operation("POST", "/shortcuts/{ideId}/interrupt", Interrupted)
READ_QUEUE: Final = Operation("GET", "/shortcuts/{ideId}/queue", Queue)
REMOVE_WORKTREE: Final = Operation("DELETE", "/shortcuts/{ideId}/worktree", WorktreeRemoved)
WITHDRAW: Final = Operation("DELETE", "/shortcuts/{ideId}/queue/{messageId}", Withdrawn)
READ_DIFF: Final = Operation("GET", "/shortcuts/{ideId}/diff", Changes)
READ_FILES: Final = Operation("GET", "/shortcuts/{ideId}/files", Files)
READ_SCREEN: Final = Operation("GET", "/shortcuts/{ideId}/screen", Screen)
READ_DEBUG: Final = Operation("GET", "/shortcuts/{ideId}/chat/debug", ChatDebugged)
SEND_DEBUG: Final = Operation("POST", "/shortcuts/{ideId}/chat/debug", ChatDebugged)

EVENTS: Final = Operation("GET", "/events", bytes)

LIST_WEBHOOKS: Final = Operation("GET", "/webhooks", WebhookList)
CREATE_WEBHOOK: Final = Operation("POST", "/webhooks", WebhookWithSecret)
CHANGE_WEBHOOK: Final = Operation("PATCH", "/webhooks/{webhookId}", Webhook)
DELETE_WEBHOOK: Final = Operation("DELETE", "/webhooks/{webhookId}", Deleted)
LIST_DELIVERIES: Final = Operation("GET", "/webhooks/{webhookId}/deliveries", DeliveryList)
READ_DELIVERY: Final = Operation(
    "GET", "/webhooks/{webhookId}/deliveries/{deliveryId}", DeliveryDetails
)
TEST_WEBHOOK: Final = Operation("POST", "/webhooks/{webhookId}/test", Delivered)
RESEND: Final = Operation("POST", "/webhooks/{webhookId}/deliveries/{deliveryId}/resend", Delivered)
REPLAY: Final = Operation("POST", "/webhooks/{webhookId}/replay", Replayed)
ROTATE_SECRET: Final = Operation("POST", "/webhooks/{webhookId}/rotate-secret", WebhookWithSecret)

LOG_IN: Final = Operation("POST", "/auth/login", SessionToken)
REAUTHENTICATE: Final = Operation("POST", "/auth/reauthenticate", SessionToken)
LOG_OUT: Final = Operation("POST", "/auth/logout", Done)

ACCOUNT: Final = Operation("GET", "/account", Account)
