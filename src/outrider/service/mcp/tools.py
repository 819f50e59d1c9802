"""The tools: each is a row of the endpoint table under another name, with some of its fields.

A new tool is a new entry of `TOOLS`: the scope, the types and descriptions of the arguments,
and the type of the result are those of the endpoint.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Final, NamedTuple, get_args, get_type_hints

import msgspec
from msgspec import NODEFAULT, Meta

from outrider.contract.resources import Daemon
from outrider.contract.structs import Wire
from outrider.contract.text import Name, TargetId
from outrider.service.endpoints import ENDPOINTS
from outrider.service.http.endpoint import Endpoint
from outrider.service.http.schemas import Schema, field_docs

ROWS: Final[Mapping[str, Endpoint[Any]]] = {row.operation: row for row in ENDPOINTS}

LONGEST_WAIT: Final = 45
"""Seconds that `wait_agent` waits at most: less than the 60 after which proxies and clients give
up."""


class Argument(NamedTuple):
    """An argument that is not described as the endpoint's field is.

    Args:
        field: of the endpoint's path, query or body, which gets the value.
        default: none if the argument is required.
    """

    field: str
    type: Any
    description: str
    default: Any = NODEFAULT


class LaunchableMachine(Daemon, kw_only=True):
    """A machine of the account, and what can be launched on it."""

    types: list[str]
    """The types that launch_agent can start there: their programs are installed."""


class MachineList(Wire, kw_only=True):
    """The machines of the account."""

    daemons: list[LaunchableMachine]
    """The machines, also those that are offline."""


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A tool.

    Args:
        operation: names the row of the endpoint table.
        of_machine: the operation that is called instead if the argument `machine` is given.
        arguments: each with the endpoint's field of which it has the type and description.
        fixed: further fields that are sent.
        result: the type of the endpoint's response with what the tool adds to it.
        renamed: a field of the response that has another name in the result, and that name.
        destroys: whether it may destroy something.
        is_approval: whether it answers approvals, which the operator has to turn on.
    """

    name: str
    description: str
    operation: str
    of_machine: str | None = None
    arguments: Mapping[str, str | Argument] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    result: type[Wire] | None = None
    renamed: tuple[str, str] | None = None
    destroys: bool = False
    is_approval: bool = False

    @property
    def row(self) -> Endpoint[Any]:
        """The row of the endpoint table."""
        return ROWS[self.operation]

    @property
    def reads_only(self) -> bool:
        """Whether it changes nothing."""
        return not self.row.mutates

    @property
    def title(self) -> str:
        """The name for people."""
        return self.name.replace("_", " ").capitalize()

    @cached_property
    def _arguments(self) -> dict[str, Argument]:
        source = self.row.query or self.row.body or Wire
        return {
            name: _of_field(source, argument) if isinstance(argument, str) else argument
            for name, argument in self.arguments.items()
        }

    @cached_property
    def model(self) -> type[msgspec.Struct]:
        """The type of the arguments, which has their bounds."""
        fields = [
            (name, argument.type, msgspec.field(default=argument.default))
            for name, argument in self._arguments.items()
        ]
        return msgspec.defstruct(
            self.name, fields, bases=(Wire,), kw_only=True, rename={}, module=__name__
        )

    def fields(self, arguments: msgspec.Struct) -> dict[str, Any]:
        """Return the endpoint's fields for arguments of the type `model`."""
        fields = dict(self.fixed)
        for name, argument in self._arguments.items():
            value = getattr(arguments, name)
            outer, _, inner = argument.field.partition(".")
            if value is not None and inner:
                fields[outer] = fields.get(outer, {}) | {inner: value}
            elif value is not None:
                fields[outer] = value
        return fields

    @cached_property
    def input_schema(self) -> Schema:
        """The JSON Schema of the arguments."""
        _, components = msgspec.json.schema_components([self.model])
        schema = components[self.name]
        for name, argument in self._arguments.items():
            described: Schema = schema["properties"][name]
            described.pop("pattern", None)  # the service explains it better than a client
            described["description"] = argument.description
        return {
            "type": "object",
            "properties": schema["properties"],
            "required": schema["required"],
            "additionalProperties": False,
        }

    @cached_property
    def output_schema(self) -> Schema:
        """The JSON Schema of the result, with what it refers to in `$defs`.

        Clients refuse a result that lacks a required field. A machine agent of an older release
        does not send newer fields, so only those without a default are required.
        """
        model = self.result or self.row.responses[0]
        _, components = msgspec.json.schema_components([model], ref_template="#/$defs/{name}")
        schema: Schema = components.pop(model.__name__)
        if self.renamed is not None:
            name, new_name = self.renamed
            schema["properties"] = {new_name: schema["properties"][name]}
            schema["required"] = [new_name]
        plain: Schema = _without_checks({**schema, "$defs": components})
        return plain


def _of_field(source: type[msgspec.Struct], path: str) -> Argument:
    """Return the argument for a field, or for one of an object in it (`worktree.branch`)."""
    name, _, inner = path.partition(".")
    field = next(field for field in msgspec.structs.fields(source) if field.encode_name == name)
    kind = get_type_hints(source, include_extras=True)[field.name]
    if inner:
        # The object is optional: it is sent if one of its fields is given.
        argument = _of_field(get_args(kind)[0], inner)
        return argument._replace(field=path, type=argument.type | None, default=None)
    return Argument(path, kind, field_docs(source)[field.name], field.default)


_CHECKS: Final = frozenset({"pattern", "maxLength", "maxItems", "minimum", "maximum", "title"})
"""What is left out of the schemas of results: clients have nothing to check, and models read it."""


def _without_checks(schema: Any) -> Any:
    """Return a schema without `_CHECKS`; a property of such a name is a dictionary."""
    if isinstance(schema, list):
        return [_without_checks(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _without_checks(value)
        for name, value in schema.items()
        if name not in _CHECKS or isinstance(value, dict)
    }


_AGENT: Final = Argument(
    "ideId",
    TargetId,
    "The agent's target id: `targetId` of list_agents, `sessionTargetId` of launch_agent.",
)
_MACHINE: Final = Argument("daemonId", Name, "The machine's id or nickname.")

TOOLS: Final = (
    Tool(
        name="list_machines",
        description="List the machines that agents can run on, with what runs there and, as "
        "`types`, what launch_agent can start. `connected` says whether a machine can be used now.",
        operation="list_daemons",
        fixed={"state": "all"},
        result=MachineList,
        renamed=("daemons", "machines"),
    ),
    Tool(
        name="list_agents",
        description="List the running agents with their status: idle, generating, "
        "waiting_approval or error. `targetId` is the `agent` of the other tools.",
        operation="sessions",
        of_machine="machine_sessions",
        arguments={
            "machine": Argument(
                "daemonId",
                Name | None,
                "The machine's id or nickname. Without it, all machines.",
                None,
            )
        },
        fixed={"state": "running", "limit": 1000},
        renamed=("sessions", "agents"),
    ),
    Tool(
        name="get_agent",
        description="Read what an agent is doing, its directory, and the question that it asks.",
        operation="status",
        arguments={"agent": _AGENT},
    ),
    Tool(
        name="read_chat",
        description="Read the messages between a user and an agent: the last ones, or those "
        "`after` a message.",
        operation="read_chat",
        arguments={"agent": _AGENT, "after": "after", "limit": "limit"},
    ),
    Tool(
        name="wait_agent",
        description="Wait until an agent is idle, asks for approval or fails, and return the "
        "messages of its turn. Give the `cursor` of send_message as `after`. With the `reason` "
        "`timeout` the agent is still at work: call it again with the returned `cursor`.",
        operation="wait",
        arguments={
            "agent": _AGENT,
            "after": "after",
            "timeout_seconds": Argument(
                "timeout",
                Annotated[int, Meta(ge=0, le=LONGEST_WAIT)],
                "Seconds to wait, at most 45.",
                25,
            ),
        },
    ),
    Tool(
        name="list_approvals",
        description="List the questions of agents that a user must approve or reject.",
        operation="approvals",
    ),
    Tool(
        name="get_diff",
        description="Read the changes in an agent's git repository: what is not committed, and "
        "with a `base` also what has been committed since then.",
        operation="read_changes",
        arguments={"agent": _AGENT, "base": "base"},
    ),
    Tool(
        name="launch_agent",
        description="Start a new agent on a machine, or continue one that has ended (`resume`). "
        "`type` is one of the machine's `types` in list_machines. Send it messages with "
        "send_message, to its `sessionTargetId`.",
        operation="launch",
        arguments={
            "machine": _MACHINE,
            "type": "type",
            "dir": "dir",
            "model": "model",
            "worktree": "worktree.branch",
            "base": "worktree.base",
            "resume": "resume",
        },
    ),
    Tool(
        name="send_message",
        description="Send a message to an agent. It returns when the agent has the message, not "
        "when it has answered: call wait_agent with the returned `cursor` for the answer.",
        operation="send_chat",
        arguments={
            "agent": _AGENT,
            "text": Argument("message", str, "The message."),
            "delivery": "delivery",
        },
    ),
    Tool(
        name="interrupt_agent",
        description="Stop the current turn of an agent, which stays ready for a message.",
        operation="interrupt",
        arguments={"agent": _AGENT},
    ),
    Tool(
        name="stop_agent",
        description="End an agent and all its processes.",
        operation="stop",
        arguments={"agent": _AGENT._replace(field="target")},
        destroys=True,
    ),
    Tool(
        name="run_command",
        description="Run a shell command on a machine and return its output and exit code. It is "
        "killed at the command timeout, which is a minute by default.",
        operation="terminal",
        arguments={"machine": _MACHINE, "command": "command", "cwd": "cwd"},
        destroys=True,
    ),
    Tool(
        name="respond_approval",
        description="Answer the question that an agent asks. Do so only if your user told you to.",
        operation="approve",
        arguments={"agent": _AGENT, "action": "action", "action_id": "actionId"},
        destroys=True,
        is_approval=True,
    ),
)
"""All tools, in the order in which they are listed."""

BY_NAME: Final = {tool.name: tool for tool in TOOLS}
