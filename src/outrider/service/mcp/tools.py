"""The tools: their arguments, and the request of the API that each of them makes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from outrider.contract.commands import (
    Accepted,
    AgentState,
    Changes,
    Chat,
    DeliveryMode,
    Interrupted,
    Launched,
    Limit,
    Resolved,
    Stopped,
    TerminalOutput,
    Verdict,
)
from outrider.contract.resources import ApprovalList, Daemon, Session
from outrider.contract.structs import Wire
from outrider.contract.targets import parse_target
from outrider.contract.text import Name, Path, TargetId
from outrider.contract.waiting import Waited
from outrider.service.http.endpoint import Method
from outrider.service.http.schemas import REFERENCE, Schema, Schemas, field_docs

LONGEST_WAIT: Final = 45
"""Seconds that `wait_agent` waits at most: less than the 60 after which proxies and clients give
up."""


class NoArguments(Wire, kw_only=True):
    """The tool has no arguments."""


class OfMachine(Wire, kw_only=True):
    """Arguments that may name a machine."""

    machine: Name | None = None
    """The machine's id or nickname. Without it, all machines."""


class OfAgent(Wire, kw_only=True):
    """Arguments that name an agent."""

    agent: TargetId
    """The agent's target id: `targetId` of list_agents, `sessionTargetId` of launch_agent."""


class ReadChatArguments(OfAgent, kw_only=True):
    """Which part of a chat."""

    after: Name | None = None
    """The id of a message: only those behind it."""
    limit: Limit | None = None
    """How many messages, at most 1000: the last ones, with `after` the first ones."""


class WaitArguments(OfAgent, kw_only=True):
    """What to wait for."""

    after: Name | None = None
    """The `cursor` of send_message, to wait for the turn that this message began, or of an earlier
    wait_agent. Without it, the agent's present status counts."""
    timeout_seconds: Annotated[int, Meta(ge=0, le=LONGEST_WAIT)] = msgspec.field(
        default=25, name="timeout_seconds"
    )
    """Seconds to wait, at most 45. At their end the `reason` is `timeout`: call it again with the
    returned `cursor`."""


class DiffArguments(OfAgent, kw_only=True):
    """What to compare with."""

    base: Name | None = None
    """The commit, branch or tag to compare with; `start` is the commit at which the session began.
    Without it, HEAD: what the agent has committed is not in the result."""


class LaunchArguments(Wire, kw_only=True):
    """What to launch, and where."""

    machine: Name
    """The machine's id or nickname."""
    type: Name
    """The type of agent: one of the machine's `types` in list_machines."""
    dir: Path | None = None
    """The directory to work in: an absolute path, or one beginning with `~`. Without it, the home
    directory."""
    model: Name | None = None
    """The model, by the agent's own name for it."""
    worktree: Name | None = None
    """A branch: the agent works in a git worktree of its own of the repository at `dir`, with this
    branch, which is created if it does not exist."""
    base: Name | None = None
    """With `worktree`: the commit, branch or tag at which a new branch begins. Without it, HEAD."""
    resume: Name | None = None
    """The session id of an ended agent of this type to continue, with its chat. Not together with
    `dir`, `model` or `worktree`."""

    def __post_init__(self) -> None:
        if self.base is not None and self.worktree is None:
            raise ValueError("`base` says where the branch of a worktree begins: give `worktree`")


class SendArguments(OfAgent, kw_only=True):
    """What to send."""

    text: str
    """The message."""
    delivery: DeliveryMode = "queue"
    """While the agent is generating: `queue` the message, `interrupt` the turn and then send it, or
    `reject` it."""


class RunArguments(Wire, kw_only=True):
    """What to run."""

    machine: Name
    """The machine's id or nickname."""
    command: str
    """The shell command. Its standard input is empty."""
    cwd: Path | None = None
    """The directory to run it in. Without it, the home directory."""


class RespondArguments(OfAgent, kw_only=True):
    """The answer to an approval."""

    action: Verdict
    """Whether to approve or reject."""
    action_id: Name | None = msgspec.field(default=None, name="action_id")
    """The id of the action that is answered, as list_approvals gives it. Without it, the one that
    is pending."""


class LaunchableMachine(Daemon, kw_only=True):
    """A machine of the account, and what can be launched on it."""

    types: list[str]
    """The types that launch_agent can start there: their programs are installed."""


class MachineList(Wire, kw_only=True):
    """The machines of the account."""

    machines: list[LaunchableMachine]
    """The machines, also those that are offline."""


class AgentList(Wire, kw_only=True):
    """The running agents."""

    agents: list[Session]
    """The agents, the newest launch first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """A request of the API.

    Args:
        method: with `path`, names a row of the endpoint table.
        parameters: the parameters in the path.
        type_of: an agent whose type the body needs as `type`; only its machine knows it.
    """

    method: Method
    path: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    type_of: str | None = None


Effect = Literal["read", "write", "destroy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool.

    Args:
        arguments: the type of its arguments, which has their bounds.
        request: makes the request of the API from the arguments.
        endpoint: method and path of that request; the endpoint's scope is the tool's.
        result: the type of the result.
        renamed: the field of the response that has another name in the result, and that name.
        effect: whether it only reads, changes something, or may destroy something.
        is_approval: whether it answers approvals, which the operator has to turn on.
    """

    name: str
    title: str
    description: str
    arguments: type[Wire]
    request: Callable[[Any], ApiRequest]
    endpoint: tuple[Method, str]
    result: type[Wire]
    renamed: tuple[str, str] | None = None
    effect: Effect = "read"
    is_approval: bool = False

    def output(self, response: bytes) -> dict[str, Any]:
        """Return the result from the body of the response."""
        body: dict[str, Any] = msgspec.json.decode(response)
        if self.renamed is None:
            return body
        name, new_name = self.renamed
        return {new_name: body[name]}


_API: Final = "/api/v1"
_DAEMONS: Final = f"{_API}/daemons"
_SESSIONS: Final = f"{_API}/sessions"
_TARGET: Final = f"{_API}/shortcuts/{{ideId}}"
_MACHINE: Final = f"{_API}/shortcuts/{{daemonId}}"
_RUNNING: Final = {"state": "running", "limit": 1000}


def _given(**values: Any) -> dict[str, Any]:
    """Return the values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def _of_agent(
    method: Method,
    path: str,
    arguments: OfAgent,
    query: Mapping[str, Any] | None = None,
    **body: Any,
) -> ApiRequest:
    return ApiRequest(
        method=method,
        path=f"{_TARGET}/{path}",
        parameters={"ideId": arguments.agent},
        query=query or {},
        body=_given(**body) if method == "POST" else None,
    )


def _list_machines(_: NoArguments) -> ApiRequest:
    return ApiRequest(method="GET", path=_DAEMONS, query={"state": "all"})


def _list_agents(arguments: OfMachine) -> ApiRequest:
    if arguments.machine is None:
        return ApiRequest(method="GET", path=_SESSIONS, query=_RUNNING)
    path = f"{_DAEMONS}/{{daemonId}}/sessions"
    named = {"daemonId": arguments.machine}
    return ApiRequest(method="GET", path=path, parameters=named, query=_RUNNING)


def _get_agent(arguments: OfAgent) -> ApiRequest:
    return _of_agent("GET", "status", arguments)


def _read_chat(arguments: ReadChatArguments) -> ApiRequest:
    query = _given(after=arguments.after, limit=arguments.limit)
    return _of_agent("GET", "chat", arguments, query)


def _wait_agent(arguments: WaitArguments) -> ApiRequest:
    query = _given(after=arguments.after, timeout=arguments.timeout_seconds)
    return _of_agent("GET", "wait", arguments, query)


def _list_approvals(_: NoArguments) -> ApiRequest:
    return ApiRequest(method="GET", path=f"{_API}/approvals")


def _get_diff(arguments: DiffArguments) -> ApiRequest:
    return _of_agent("GET", "diff", arguments, _given(base=arguments.base))


def _launch_agent(arguments: LaunchArguments) -> ApiRequest:
    branch = arguments.worktree
    worktree = None if branch is None else _given(branch=branch, base=arguments.base)
    return ApiRequest(
        method="POST",
        path=f"{_MACHINE}/launch",
        parameters={"daemonId": arguments.machine},
        body=_given(
            type=arguments.type,
            dir=arguments.dir,
            model=arguments.model,
            worktree=worktree,
            resume=arguments.resume,
        ),
    )


def _send_message(arguments: SendArguments) -> ApiRequest:
    return _of_agent("POST", "chat", arguments, message=arguments.text, delivery=arguments.delivery)


def _interrupt_agent(arguments: OfAgent) -> ApiRequest:
    return _of_agent("POST", "interrupt", arguments)


def _stop_agent(arguments: OfAgent) -> ApiRequest:
    target = parse_target(arguments.agent)
    return ApiRequest(
        method="POST",
        path=f"{_MACHINE}/stop",
        parameters={"daemonId": arguments.agent if target is None else target.daemon_id},
        body={"target": arguments.agent},
        type_of=arguments.agent,
    )


def _run_command(arguments: RunArguments) -> ApiRequest:
    return ApiRequest(
        method="POST",
        path=f"{_DAEMONS}/{{daemonId}}/terminal",
        parameters={"daemonId": arguments.machine},
        body=_given(command=arguments.command, cwd=arguments.cwd),
    )


def _respond_approval(arguments: RespondArguments) -> ApiRequest:
    return _of_agent(
        "POST", "approve", arguments, action=arguments.action, actionId=arguments.action_id
    )


TOOLS: Final = (
    Tool(
        name="list_machines",
        title="List machines",
        description="List the machines that agents can run on, with what runs there and, as "
        "`types`, what launch_agent can start. `connected` says whether a machine can be used now.",
        arguments=NoArguments,
        request=_list_machines,
        endpoint=("GET", _DAEMONS),
        result=MachineList,
        renamed=("daemons", "machines"),
    ),
    Tool(
        name="list_agents",
        title="List agents",
        description="List the running agents with their status: idle, generating, "
        "waiting_approval or error. `targetId` is the `agent` of the other tools.",
        arguments=OfMachine,
        request=_list_agents,
        endpoint=("GET", _SESSIONS),
        result=AgentList,
        renamed=("sessions", "agents"),
    ),
    Tool(
        name="get_agent",
        title="Read an agent's status",
        description="Read what an agent is doing, its directory, and the question that it asks.",
        arguments=OfAgent,
        request=_get_agent,
        endpoint=("GET", f"{_TARGET}/status"),
        result=AgentState,
    ),
    Tool(
        name="read_chat",
        title="Read a chat",
        description="Read the messages between a user and an agent.",
        arguments=ReadChatArguments,
        request=_read_chat,
        endpoint=("GET", f"{_TARGET}/chat"),
        result=Chat,
    ),
    Tool(
        name="wait_agent",
        title="Wait for an agent",
        description="Wait until an agent is idle, asks for approval or fails, and return the "
        "messages of its turn. Give the `cursor` of send_message as `after`. With the `reason` "
        "`timeout` the agent is still at work: call it again with the returned `cursor`.",
        arguments=WaitArguments,
        request=_wait_agent,
        endpoint=("GET", f"{_TARGET}/wait"),
        result=Waited,
    ),
    Tool(
        name="list_approvals",
        title="List approvals",
        description="List the questions of agents that a user must approve or reject.",
        arguments=NoArguments,
        request=_list_approvals,
        endpoint=("GET", f"{_API}/approvals"),
        result=ApprovalList,
    ),
    Tool(
        name="get_diff",
        title="Read an agent's changes",
        description="Read the changes in an agent's git repository: what is not committed, and "
        "with a `base` also what has been committed since then.",
        arguments=DiffArguments,
        request=_get_diff,
        endpoint=("GET", f"{_TARGET}/diff"),
        result=Changes,
    ),
    Tool(
        name="launch_agent",
        title="Launch an agent",
        description="Start a new agent on a machine, or continue one that has ended (`resume`). "
        "Send it messages with send_message, to its `sessionTargetId`.",
        arguments=LaunchArguments,
        request=_launch_agent,
        endpoint=("POST", f"{_MACHINE}/launch"),
        result=Launched,
        effect="write",
    ),
    Tool(
        name="send_message",
        title="Send a message",
        description="Send a message to an agent. It returns when the agent has the message, not "
        "when it has answered: call wait_agent with the returned `cursor` for the answer.",
        arguments=SendArguments,
        request=_send_message,
        endpoint=("POST", f"{_TARGET}/chat"),
        result=Accepted,
        effect="write",
    ),
    Tool(
        name="interrupt_agent",
        title="Interrupt an agent",
        description="Stop the current turn of an agent, which stays ready for a message.",
        arguments=OfAgent,
        request=_interrupt_agent,
        endpoint=("POST", f"{_TARGET}/interrupt"),
        result=Interrupted,
        effect="write",
    ),
    Tool(
        name="stop_agent",
        title="Stop an agent",
        description="End an agent and all its processes.",
        arguments=OfAgent,
        request=_stop_agent,
        endpoint=("POST", f"{_MACHINE}/stop"),
        result=Stopped,
        effect="destroy",
    ),
    Tool(
        name="run_command",
        title="Run a shell command",
        description="Run a shell command on a machine and return its output and exit code. It is "
        "killed at the command timeout, which is a minute by default.",
        arguments=RunArguments,
        request=_run_command,
        endpoint=("POST", f"{_DAEMONS}/{{daemonId}}/terminal"),
        result=TerminalOutput,
        effect="destroy",
    ),
    Tool(
        name="respond_approval",
        title="Approve or reject",
        description="Answer the question that an agent asks. Do so only if your user told you to.",
        arguments=RespondArguments,
        request=_respond_approval,
        endpoint=("POST", f"{_TARGET}/approve"),
        result=Resolved,
        effect="destroy",
        is_approval=True,
    ),
)
"""All tools, in the order in which they are listed."""

BY_NAME: Final = {tool.name: tool for tool in TOOLS}

_CHECKS: Final = frozenset(
    {"pattern", "maxLength", "minLength", "maxItems", "minimum", "maximum", "examples", "title"}
)
"""What is left out of the schemas of results: clients have nothing to check, and models read it."""


@cache
def input_schema(arguments: type[Wire]) -> Schema:
    """Return the JSON Schema of a tool's arguments."""
    _, components = msgspec.json.schema_components([arguments], ref_template=REFERENCE)
    found: Schema = components[arguments.__name__]
    docs = field_docs(arguments)
    for one in msgspec.structs.fields(arguments):
        described: Schema = found["properties"][one.encode_name]
        described.pop("pattern", None)  # the service explains it better than a client
        described["description"] = docs[one.name]
    return {
        "type": "object",
        "properties": found["properties"],
        "required": found["required"],
        "additionalProperties": False,
    }


@cache
def output_schema(result: type[Wire]) -> Schema:
    """Return the JSON Schema of a tool's result, with what it refers to in `$defs`.

    Clients refuse a result that lacks a required field. A machine agent of an older release does
    not send newer fields, so only those without a default are required.
    """
    components = Schemas((), [result]).components()
    _, plain = msgspec.json.schema_components([result], ref_template=REFERENCE)
    for name, component in components.items():
        if "required" in component:
            component["required"] = plain[name].get("required", [])
    root = _without_checks(components[result.__name__])
    definitions = {
        name: _without_checks(one) for name, one in components.items() if name != result.__name__
    }
    return {**root, "$defs": definitions} if definitions else root


def _without_checks(schema: Any) -> Any:
    """Return a schema without `_CHECKS`, and with references to `$defs`."""
    if isinstance(schema, list):
        return [_without_checks(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    cleaned = {}
    for name, one in schema.items():
        if name == "properties":
            cleaned[name] = {field: _without_checks(its) for field, its in one.items()}
        elif name == "$ref":
            cleaned[name] = one.replace(REFERENCE.format(name=""), "#/$defs/")
        elif name not in _CHECKS:
            cleaned[name] = _without_checks(one)
    return cleaned
