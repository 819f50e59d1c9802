"""The examples in the API's description: one machine, one agent, one webhook.

A test checks that each is valid, and that every field has one.
"""

from typing import Any, Final

from msgspec import Struct

from outrider.contract.account import Account, AccountUser, KeyView, Limits, Usage
from outrider.contract.commands import (
    Accepted,
    AgentState,
    ChangedFile,
    Changes,
    Chat,
    ChatDebug,
    ChatDebugged,
    ChatInput,
    Cursor,
    Directory,
    FileContents,
    FileEntry,
    ImagePart,
    Interrupt,
    Interrupted,
    LaunchCli,
    Launched,
    LaunchIde,
    NewWorktree,
    OpenTerminal,
    Picture,
    Queue,
    QueuedMessage,
    ReadChat,
    ResolveAction,
    Resolved,
    Screen,
    Screenshot,
    SendChat,
    StopCli,
    Stopped,
    Terminal,
    TerminalClosed,
    TerminalList,
    TerminalOutput,
    TextPart,
    Withdrawn,
    WorktreeRemoved,
)
from outrider.contract.debug import DebugBundle
from outrider.contract.enrollment import (
    DeviceAuthorization,
    DeviceDecision,
    Enrolled,
    EnrollRequest,
    MachineInfo,
    OneTimeCode,
    OneTimeCodeRequest,
    ReplacedMachine,
    TokenRequest,
    WaitingDevice,
)
from outrider.contract.errors import ErrorBody, ErrorDetail
from outrider.contract.event_stream import AccountEvent, EventPage, EventQuery
from outrider.contract.events import EventName
from outrider.contract.outcomes import Deleted, Done
from outrider.contract.resources import (
    ActionOption,
    AgentSummary,
    Approval,
    ApprovalList,
    CliEntry,
    Control,
    Daemon,
    DaemonList,
    DaemonStatus,
    DaemonSummary,
    FileDiff,
    FileLocation,
    IdeEntry,
    Machine,
    Message,
    PendingAction,
    Provider,
    Session,
    SessionPage,
    SummaryItem,
    SummaryMetadata,
    Tool,
    Workspace,
    Worktree,
)
from outrider.contract.structs import Wire
from outrider.contract.waiting import Waited
from outrider.contract.webhooks import (
    Attempt,
    Delivered,
    Delivery,
    DeliveryDetails,
    DeliveryList,
    LastDelivery,
    Replayed,
    ReplayRequest,
    Webhook,
    WebhookChange,
    WebhookList,
    WebhookRequest,
    WebhookWithSecret,
)
from outrider.service.accounts.dashboard_sessions import LoggedIn, UserView
from outrider.service.accounts.endpoints import (
    AuditQuery,
    AuditRecord,
    AuditTrail,
    SessionList,
    SessionsEnded,
    SessionView,
)
from outrider.service.accounts.login_endpoints import (
    LinkRequest,
    LoginRequest,
    PasswordChange,
    PasswordRequest,
    PasswordReset,
)
from outrider.service.agents.endpoints import ChatQuery, LaunchRequest, StopRequest
from outrider.service.agents.waiting import WaitQuery
from outrider.service.machines.endpoints import (
    ApprovalsQuery,
    DaemonsQuery,
    LaunchCliCommand,
    LaunchIdeCommand,
    ReadChatCommand,
    ResolveActionCommand,
    ScreenshotCommand,
    SendChatCommand,
    StopCliCommand,
)
from outrider.service.machines.history_endpoints import MachineSessionsQuery, SessionsQuery

MACHINE_ID: Final = "machine_01kan5x8z3e7hr5s0gq3v2m1yd"
SESSION_ID: Final = "session_01kan62c1fej3s8x9c4kq7w2hb"
SIGNED_IN_ID: Final = "session_01kan5vrt3fejs8x9c4kq7w2hb"
KEY_ID: Final = "key_01kan5w2h8eqbt4s0gq3v2m1yd"
WEBHOOK_ID: Final = "webhook_01kan69x5ve2wb0sfv5m9nq3ta"
DELIVERY_ID: Final = "dlv_01kan6b1v3ezkr7h5w0m3x9r4c"
MESSAGE_ID: Final = "msg_01kan68v9pf1etbs7q4h2d6w3y"
TARGET_ID: Final = f"{MACHINE_ID}:cli:claude-code"

_ACCOUNT_ID: Final = "acct_01kan5vrt1f9m8x0c4kq7w2hbe"
_USER_ID: Final = "user_01kan5vrt2e6sa3j5s0gq3v2m1"
_EVENT_ID: Final = "evt_01kan6a5d2fzq8h7w0m3x9r4ct"
_ACTION_ID: Final = "act_01kan67m4pf9et8r2c6h1d5v0x"
_SESSION_TARGET_ID: Final = f"{MACHINE_ID}:session:{SESSION_ID}"
_PASSWORD: Final = "a password of your own"  # noqa: S105
_DIRECTORY: Final = "/home/ada/project"
_TITLE: Final = "Fix the tests"
_NOW: Final = 1_763_674_272_500
_PNG: Final = "iVBORw0KGgo="
_CONTEXT: Final = {"activeConversation": {"sessionId": SESSION_ID}}

_WORKSPACE: Final = Workspace(path=_DIRECTORY, name="project")
_LOCATION: Final = FileLocation(path="/home/ada/project/parser.py", line=7)
_FILE_DIFF: Final = FileDiff(
    path="/home/ada/project/parser.py",
    patch="--- a/home/ada/project/parser.py\n+++ b/home/ada/project/parser.py\n"
    "@@ -7,1 +7,1 @@\n-    return None\n+    return tree\n",
)
_OPTION: Final = ActionOption(id="1", label="Yes", kind="allow_once")
_ACTION: Final = PendingAction(
    id=_ACTION_ID,
    message="Edit parser.py?",
    options=[_OPTION, ActionOption(id="3", label="No", kind="reject_once")],
    diff=[_FILE_DIFF],
)
_AGENT: Final = AgentSummary(type="claude", name="Claude", status="idle")
_WORKTREE: Final = Worktree(branch="topic", path="/home/ada/project.worktrees/topic", created=True)
_SESSION: Final = Session(
    id=SESSION_ID,
    target_id=_SESSION_TARGET_ID,
    kind="cli",
    type="claude-code",
    name="Claude Code",
    status="waiting_approval",
    title=_TITLE,
    workspace=_WORKSPACE,
    model="opus",
    created_at=_NOW - 72_500,
    last_activity_at=_NOW,
    pending_action=_ACTION,
    worktree=_WORKTREE,
)
_ENDED_SESSION: Final = Session(
    id=SESSION_ID,
    target_id=_SESSION_TARGET_ID,
    kind="cli",
    type="claude-code",
    name="Claude Code",
    status="idle",
    title=_TITLE,
    workspace=_WORKSPACE,
    model="opus",
    created_at=_NOW - 72_500,
    last_activity_at=_NOW - 5_000,
    state="ended",
    ended_at=_NOW,
    end_reason="stopped",
    resumable=True,
)
_MACHINE: Final = Machine(
    hostname="workshop",
    platform="linux",
    arch="x86_64",
    release="6.12.0",
    cpus=8,
    total_mem=33_554_432_000,
    free_mem=21_474_836_480,
    loadavg=[0.42, 0.35, 0.3],
    uptime=86_400.5,
)
_PROVIDER: Final = Provider(
    type="claude-code",
    category="cli",
    display_name="Claude Code",
    installed=True,
    path="/usr/local/bin/claude",
    verified=True,
)
_APPROVAL: Final = Approval(
    action=_ACTION,
    target_id=_SESSION_TARGET_ID,
    session_id=SESSION_ID,
    type="claude-code",
    title=_TITLE,
    workspace=_WORKSPACE,
    daemon_id=MACHINE_ID,
    nickname="laptop",
    created_at=_NOW,
)
_CLI: Final = CliEntry(
    id=TARGET_ID,
    type="claude-code",
    name="Claude Code",
    session_id=SESSION_ID,
    status="waiting_approval",
    title=_TITLE,
    workspace=_WORKSPACE,
    last_activity_at=_NOW,
)
_IDE: Final = IdeEntry(
    id=f"{MACHINE_ID}:ide:jupyterlab",
    type="jupyterlab",
    name="JupyterLab",
    cdp_connected=True,
    session_id="session_01kan63d2gfk4t9y0d5mr8x3jc",
    status="idle",
    title="Plot the samples",
    workspace=_WORKSPACE,
    last_activity_at=_NOW - 5_000,
    agents=[_AGENT],
)
_DAEMON: Final = Daemon(
    id=MACHINE_ID,
    hostname="workshop",
    nickname="laptop",
    platform="linux",
    cdp_connected=True,
    ides=[_IDE],
    clis=[_CLI],
    acps=[],
    version="1.0.0",
    connected_at=_NOW - 3_600_000,
    last_seen_at=_NOW,
    connected=True,
    reconnecting=True,
)
_STATUS: Final = DaemonStatus(
    **{name: getattr(_DAEMON, name) for name in DaemonSummary.__struct_fields__},
    connected=True,
    machine=_MACHINE,
    sessions=[_SESSION],
    available_providers=[_PROVIDER],
    timestamp=_NOW,
)
_TOOL: Final = Tool(
    id="toolu_1",
    kind="execute",
    title="sed -i s/None/tree/ parser.py",
    status="completed",
    exit_code=0,
    diff=[_FILE_DIFF],
    locations=[_LOCATION],
    started_at=_NOW - 30_000,
    ended_at=_NOW - 29_000,
)
_TOOL_CALL: Final = Message(
    id="msg_01kan68v9pf1etbs7q4h2d6w3z",
    index=1,
    role="assistant",
    kind="tool_call",
    content='{"id":"toolu_1","name":"Bash","input":{"command":"sed -i s/None/tree/ parser.py"}}',
    timestamp=_NOW - 30_000,
    tool=_TOOL,
)
_MESSAGE: Final = Message(
    id=MESSAGE_ID,
    index=0,
    role="user",
    kind="text",
    content="Write a test for the parser",
    timestamp=_NOW - 60_000,
)
_SUMMARY: Final = SummaryItem(id="model", label="Model", value="opus")
_CONTROL: Final = Control(
    id="mode", label="Mode", type="select", options=["default", "plan"], value="default"
)
_SEND: Final = SendChat(message="Write a test for the parser")
_QUEUED: Final = QueuedMessage(
    message_id=MESSAGE_ID, text="Write a test for the parser", created_at=_NOW
)
_CURSOR: Final = Cursor(x=2, y=1)
_CHANGED: Final = ChangedFile(
    path="src/parser.py", status="modified", additions=1, deletions=0, binary=False
)
_FILE: Final = FileEntry(name="parser.py", type="file", size=1204)
_TERMINAL: Final = OpenTerminal(name="build", busy=True)
_RESOLVE: Final = ResolveAction(action="approve", action_id=_ACTION_ID)
_BUNDLE: Final = DebugBundle(
    session={"id": SESSION_ID, "type": "claude-code", "status": "idle"},
    provider={"type": "claude-code", "installed": True},
    parser={"rule": "idle: an empty prompt"},
    terminal={"source": "screen", "text": "> "},
    messages=[{"role": "user", "content": "Write a test for the parser"}],
    events=[{"event": "agent:generating_completed", "duration": 12.5}],
    versions={"outrider": "1.0.0", "protocol": "1"},
    frontend_snapshot=_CONTEXT,
    redactions={"jwt": 1},
    truncated=True,
    omitted=["messages: the first 2 of 20"],
    problems=["provider: not there within 5 s"],
)
_KEY: Final = KeyView(
    id=KEY_ID,
    name="ci",
    prefix="ork_3fKz",
    scopes=["agent:read", "ide:read"],
    created_at=_NOW - 86_400_000,
    expires_at=_NOW + 86_400_000,
    last_used_at=_NOW,
)
_USAGE: Final = Usage(month="2025-11", calls=1234, limit=50_000)
_LIMITS: Final = Limits(
    requests_per_minute_per_key=120,
    requests_per_minute_per_session=600,
    requests_per_minute_per_ip=60,
    auth_requests_per_five_minutes=10,
    calls_per_month=50_000,
    webhooks=10,
)
_RECORD: Final = AuditRecord(
    id="aud_01kan6c4t6fzq8h7w0m3x9r4ct",
    at=_NOW,
    principal=KEY_ID,
    action="terminal",
    target=MACHINE_ID,
    outcome=200,
    address="203.0.113.9",
    request_id="019aa5b2-31c4-7d10-a2f3-5b1c0e9d7f26",
)
_REPLACED: Final = ReplacedMachine(id=MACHINE_ID, nickname="laptop")
_SIGNED_IN: Final = SessionView(
    id=SIGNED_IN_ID,
    created_at=_NOW - 3_600_000,
    last_seen_at=_NOW,
    address="203.0.113.9",
    user_agent="Mozilla/5.0",
    current=True,
)
_ACCOUNT_USER: Final = AccountUser(id=_USER_ID, email="ada@example.org")
_USER: Final = UserView(id=_USER_ID, account_id=_ACCOUNT_ID, email="ada@example.org")
_URL: Final = "https://example.org/hooks/outrider"
_LAST_DELIVERY: Final = LastDelivery(
    id=DELIVERY_ID,
    event=EventName.GENERATING_COMPLETED,
    status="succeeded",
    status_code=204,
    at=_NOW,
)
_WEBHOOK: Final = Webhook(
    id=WEBHOOK_ID,
    url=_URL,
    events=[EventName.GENERATING_COMPLETED, EventName.WAITING_APPROVAL],
    active=True,
    created_at=_NOW - 86_400_000,
    updated_at=_NOW - 86_400_000,
    last_delivery=_LAST_DELIVERY,
    disabled_reason=None,
)
_WITH_SECRET: Final = WebhookWithSecret(
    **{name: getattr(_WEBHOOK, name) for name in _WEBHOOK.__struct_fields__},
    secret="whsec_Zm9yIGV4YW1wbGUgb25seSwgbm90IGEgc2VjcmV0",  # noqa: S106
)
_ATTEMPT: Final = Attempt(
    attempt=1, status_code=204, response_body="", error=None, started_at=_NOW - 40, duration_ms=40
)
_DELIVERY: Final = Delivery(
    id=DELIVERY_ID,
    webhook_id=WEBHOOK_ID,
    event_id=_EVENT_ID,
    event=EventName.GENERATING_COMPLETED,
    status="succeeded",
    status_code=204,
    response_body="",
    error=None,
    attempt=1,
    duration_ms=40,
    created_at=_NOW - 60,
    completed_at=_NOW,
    next_attempt_at=None,
    attempts=[_ATTEMPT],
)
_DELIVERY_DETAILS: Final = DeliveryDetails(
    **{name: getattr(_DELIVERY, name) for name in _DELIVERY.__struct_fields__},
    request_headers={
        "Content-Type": "application/json",
        "X-Service-Event": EventName.GENERATING_COMPLETED,
        "X-Service-Delivery": DELIVERY_ID,
        "X-Service-Attempt": "1",
    },
    request_body='{"event": "agent:generating_completed", "timestamp": 1750000000000}',
)

_EVENT_CURSOR: Final = "0000000000000042"
_EVENT: Final = AccountEvent(
    cursor=_EVENT_CURSOR,
    id="evt_01kan6c4t6fzq8h7w0m3x9r4ct",
    event="agent:waiting_approval",
    timestamp=_NOW,
    daemon_id=MACHINE_ID,
    session_id=SESSION_ID,
    target_id=f"{MACHINE_ID}:session:{SESSION_ID}",
    ide_id=TARGET_ID,
    ide_type="claude-code",
    duration=12.5,
    payload={"chatTitle": "Tests for the parser", "sessionId": SESSION_ID, "timestamp": _NOW},
)

_APPROVAL_CURSOR: Final = f"{_NOW:016d}:{_SESSION_TARGET_ID}"

_INSTANCES: Final[tuple[Wire, ...]] = (
    # Resources
    _WORKSPACE, _WORKTREE, _OPTION, _ACTION, _AGENT, _SESSION, _MACHINE, _PROVIDER, _CLI, _IDE,
    _DAEMON, _STATUS, _LOCATION, _FILE_DIFF, _TOOL, _MESSAGE, _TOOL_CALL,
    _SUMMARY, _CONTROL, _BUNDLE,
    DaemonList(daemons=[_DAEMON]),
    _APPROVAL, ApprovalList(approvals=[_APPROVAL], cursor=_APPROVAL_CURSOR),
    ApprovalsQuery(after=_APPROVAL_CURSOR),
    SummaryMetadata(items=[_SUMMARY]),
    # Commands
    SendChatCommand(payload=_SEND),
    ReadChatCommand(payload=ReadChat(limit=20)),
    ResolveActionCommand(payload=_RESOLVE),
    ScreenshotCommand(payload=Screenshot(width=1280)),
    LaunchIdeCommand(payload=LaunchIde(ide_type="jupyterlab", dir=_DIRECTORY)),
    LaunchCliCommand(payload=LaunchCli(cli_type="claude-code", dir=_DIRECTORY)),
    StopCliCommand(payload=StopCli(cli_type="claude-code", session_id=SESSION_ID)),
    _SEND, _RESOLVE,
    ReadChat(limit=20),
    Screenshot(width=1280),
    LaunchIde(ide_type="jupyterlab", dir=_DIRECTORY),
    LaunchCli(cli_type="claude-code", dir=_DIRECTORY),
    StopCli(cli_type="claude-code", session_id=SESSION_ID),
    TextPart(text="What is on this picture?"),
    ImagePart(mime_type="image/png", data=_PNG),
    ChatInput(parts=[TextPart(text="What is on this picture?"),
                     ImagePart(mime_type="image/png", data=_PNG)]),
    NewWorktree(branch="topic", base="main"),
    LaunchRequest(type="claude-code", dir=_DIRECTORY,
                  worktree=NewWorktree(branch="topic", base="main")),
    StopRequest(type="claude-code", session_id=SESSION_ID),
    Terminal(command="git status --short", cwd=_DIRECTORY),
    ChatDebug(frontend_snapshot=_CONTEXT),
    Interrupt(agent_type="claude-code"),
    # What comes of commands
    Launched(id=TARGET_ID, session_id=SESSION_ID, session_target_id=_SESSION_TARGET_ID, kind="cli",
             type="claude-code", status="idle"),
    Stopped(stopped=[SESSION_ID]),
    Accepted(message_id=MESSAGE_ID, session_id=SESSION_ID, status="generating", queued=False,
             cursor=MESSAGE_ID),
    Chat(id=_SESSION_TARGET_ID, session_id=SESSION_ID, agent_type="claude-code", title=_TITLE,
         status="waiting_approval", messages=[_MESSAGE, _TOOL_CALL], pending_action=_ACTION,
         total_messages=2, type="claude-code"),
    ChatQuery(before=MESSAGE_ID),
    DaemonsQuery(state="all"),
    MachineSessionsQuery(state="ended", before=SESSION_ID),
    SessionsQuery(state="ended", q="parser", before=SESSION_ID),
    SessionPage(sessions=[_ENDED_SESSION], cursor=_SESSION_TARGET_ID),
    WaitQuery(after=MESSAGE_ID),
    Waited(reason="waiting_approval", cursor=MESSAGE_ID, status="waiting_approval",
           messages=[_MESSAGE, _TOOL_CALL], pending_action=_ACTION),
    Resolved(action="approve", action_id=_ACTION_ID, option_id="1", status="generating"),
    AgentState(id=_SESSION_TARGET_ID, session_id=SESSION_ID, agent_type="claude-code",
               status="waiting_approval", title=_TITLE,
               summary_metadata=SummaryMetadata(items=[_SUMMARY]), controls=[_CONTROL],
               workspace=_WORKSPACE, pending_action=_ACTION, error=None, updated_at=_NOW),
    Interrupted(status="idle"),
    _QUEUED,
    Queue(messages=[_QUEUED]),
    Withdrawn(message_id=MESSAGE_ID),
    WorktreeRemoved(removed=_WORKTREE.path),
    _CURSOR,
    Screen(columns=110, rows=36, text="Done.\n$", ansi="\x1b[32mDone.\x1b[0m\n$",
           cursor=_CURSOR),
    _CHANGED, _FILE,
    Changes(branch="main", base="HEAD", ahead=0, files=[_CHANGED], truncated=False,
            patch="diff --git a/src/parser.py b/src/parser.py\n…"),
    Directory(path="src", entries=[_FILE], truncated=False),
    FileContents(path="src/parser.py", size=1204, text="import re\n…", truncated=False,
                 binary=False),
    _TERMINAL,
    TerminalList(terminals=[_TERMINAL]),
    Picture(format="png", width=1280, height=800, data=_PNG),
    TerminalOutput(terminal=None, exit_code=0, output=" M src/parser.py\n", truncated=False,
                   duration_ms=12, cwd=_DIRECTORY),
    TerminalClosed(terminal="build"),
    ChatDebugged(bundle=_BUNDLE, text="# Outrider debug bundle\n…"),
    Done(),
    Deleted(id=WEBHOOK_ID),
    # Webhooks
    _LAST_DELIVERY, _WEBHOOK, _WITH_SECRET, _ATTEMPT, _DELIVERY, _DELIVERY_DETAILS,
    WebhookList(webhooks=[_WEBHOOK]),
    WebhookRequest(url=_URL, events=["agent:generating_completed", "agent:waiting_approval"]),
    WebhookChange(active=False),
    DeliveryList(deliveries=[_DELIVERY], cursor=DELIVERY_ID),
    Delivered(success=True, delivery=_DELIVERY),
    ReplayRequest(since=_NOW - 3_600_000),
    Replayed(count=3),
    # Events
    EventQuery(events="agent:*,machine:disconnected", daemon_id=MACHINE_ID,
               target=f"{MACHINE_ID}:session:{SESSION_ID}", deltas="true",
               after=_EVENT_CURSOR, wait=30),
    _EVENT,
    EventPage(events=[_EVENT], cursor=_EVENT_CURSOR, resume="ok"),
    # Sessions and enrollment
    LinkRequest(token="Zm9yIGV4YW1wbGUgb25seQ"),  # noqa: S106
    LoginRequest(email="ada@example.org", password=_PASSWORD),
    PasswordRequest(password=_PASSWORD),
    PasswordChange(current=_PASSWORD, new="another one of your own"),
    PasswordReset(token="Zm9yIGV4YW1wbGUgb25seQ", password=_PASSWORD),  # noqa: S106
    _USER,
    LoggedIn(token="eyJhbGciOiJIUzI1NiIs…", expires_at=_NOW + 43_200_000,  # noqa: S106
             auth_time=_NOW, user=_USER),
    MachineInfo(hostname="workshop", platform="linux", version="1.0.0", nickname="laptop"),
    _REPLACED,
    WaitingDevice(hostname="workshop", platform="linux", version="1.0.0", nickname="laptop",
                  daemon_id=MACHINE_ID, address="203.0.113.9", requested_at=_NOW,
                  replaces=_REPLACED),
    EnrollRequest(hostname="workshop", platform="linux", version="1.0.0", code="BCDF-GHJK-LMNP"),
    Enrolled(daemon_id=MACHINE_ID, token="omt_…", nickname="laptop"),  # noqa: S106
    DeviceAuthorization(device_code="Zm9yIGV4YW1wbGUgb25seQ", user_code="WDJB-MJHT",
                        verification_uri="https://outrider.example.org/device",
                        verification_uri_complete="https://outrider.example.org/device?code=WDJB-MJHT",
                        expires_in=600, interval=5),
    TokenRequest(device_code="Zm9yIGV4YW1wbGUgb25seQ"),
    DeviceDecision(user_code="WDJB-MJHT"),
    OneTimeCode(code="BCDF-GHJK-LMNP", expires_at=_NOW + 600_000),
    OneTimeCodeRequest(nickname="laptop"),
    # The account
    _USAGE, _LIMITS, _KEY, _RECORD,
    _ACCOUNT_USER,
    Account(id=_ACCOUNT_ID, plan="pro", usage=_USAGE, limits=_LIMITS, keys=[_KEY],
            user=_ACCOUNT_USER),
    AuditTrail(records=[_RECORD]),
    AuditQuery(before="aud_01kan6c4t6fzq8h7w0m3x9r4ct"),
    _SIGNED_IN,
    SessionList(sessions=[_SIGNED_IN]),
    SessionsEnded(ended=2),
    # Errors
    ErrorDetail(path="message", message="the field `message` is missing"),
    ErrorBody(error="The field `message` is missing",
              details=[ErrorDetail(path="message", message="the field `message` is missing")]),
)  # fmt: skip


EXAMPLES: Final[dict[type[Struct], Wire]] = {type(instance): instance for instance in _INSTANCES}
"""An example of each type."""

FIELD_EXAMPLES: Final[dict[str, Any]] = {
    "actionId": _ACTION_ID,
    "after": MESSAGE_ID,
    "agentType": "claude-code",
    "before": DELIVERY_ID,
    "code": "NO_PENDING_ACTION",
    "base": "main",
    "columns": 120,
    "completedAt": _NOW,
    "controls": {"mode": "plan"},
    "cwd": _DIRECTORY,
    "daemonId": MACHINE_ID,
    "dir": _DIRECTORY,
    "disabledReason": "The receiver answered 410 Gone",
    "endReason": "stopped",
    "endedAt": _NOW,
    "error": "The receiver did not answer within 10 s",
    "input": {"parts": [{"type": "text", "text": "Write a test for the parser"}]},
    "limit": 20,
    "mode": "read",
    "model": "opus",
    "name": "build",
    "nextAttemptAt": _NOW + 5_000,
    "nickname": "laptop",
    "notResumable": "Gemini CLI (ACP) cannot open an earlier session again",
    "oldPath": "src/reader.py",
    "optionId": "1",
    "path": "src/parser.py",
    "resume": SESSION_ID,
    "rows": 40,
    "screenshot": {"format": "jpeg", "width": 320, "height": 200, "data": "/9j/4AAQSkZJRg=="},
    "sessionId": SESSION_ID,
    "source": "screen",
    "target": TARGET_ID,
    "targetSessionId": SESSION_ID,
    "terminal": "build",
    "textFallback": "What is on the picture that I cannot show you?",
    "userCode": "WDJB-MJHT",
    "width": 1280,
}
"""By a field's name, an example for where the example of its type has no value."""
