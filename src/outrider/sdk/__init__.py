"""The Python client: `Outrider`, and `AsyncOutrider` for asyncio. docs/python.md shows how.

```python
from outrider.sdk import Outrider

with Outrider() as client:
    with client.machines.get("laptop").launch("claude-code", dir="/srv/app") as agent:
        print(agent.ask("Write a test").text)
```

    asynchronous/   the client, with I/O; synchronous/ is generated from it
    operations, decoding, retry_policy, turn,    what both share, free of I/O
    configuration
    errors, results                              what they raise and return, beside `contract`
    webhooks                                     for receivers of webhooks
"""

from outrider.contract.commands import NewWorktree
from outrider.contract.errors import OutriderError
from outrider.contract.resources import Message, PendingAction
from outrider.sdk.asynchronous.agent import AsyncAgent
from outrider.sdk.asynchronous.client import AsyncOutrider
from outrider.sdk.asynchronous.machine import AsyncMachine
from outrider.sdk.errors import (
    ApiError,
    ApprovalRequired,
    AskTimeout,
    AuthenticationError,
    CommandTimeout,
    Conflict,
    ConnectionFailed,
    MachineOffline,
    MissingApiKey,
    NotFound,
    PermissionDenied,
    RateLimited,
    ResponseTimeout,
    SessionEnded,
    UnexpectedResponse,
)
from outrider.sdk.results import Delta, Event, Reply
from outrider.sdk.synchronous.agent import Agent
from outrider.sdk.synchronous.client import Outrider
from outrider.sdk.synchronous.machine import Machine

__all__ = [
    "Agent",
    "ApiError",
    "ApprovalRequired",
    "AskTimeout",
    "AsyncAgent",
    "AsyncMachine",
    "AsyncOutrider",
    "AuthenticationError",
    "CommandTimeout",
    "Conflict",
    "ConnectionFailed",
    "Delta",
    "Event",
    "Machine",
    "MachineOffline",
    "Message",
    "MissingApiKey",
    "NewWorktree",
    "NotFound",
    "Outrider",
    "OutriderError",
    "PendingAction",
    "PermissionDenied",
    "RateLimited",
    "Reply",
    "ResponseTimeout",
    "SessionEnded",
    "UnexpectedResponse",
]
