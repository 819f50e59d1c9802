/** Examples of what the service sends, for the kit and for tests of components. */
import type { ActionOption, Daemon, Message, PendingAction, Session, Tool } from "@/api/client";

/** A time that is long past: every age is a date, the same in all pictures. */
const AT = Date.UTC(2024, 4, 17, 9, 30);

export const session = (changes: Partial<Session> = {}): Session => ({
  ...{ id: "session_1", targetId: "machine_1:session:session_1", kind: "acp", type: "demo", name: "Demo agent" },
  ...{ status: "idle", title: "Make the parser strict", model: null, createdAt: AT, lastActivityAt: AT },
  ...{ workspace: { path: "/srv/parser", name: "parser" }, worktree: null, pendingAction: null, error: null },
  ...{ cdpConnected: false, agents: [], state: "running", endedAt: null, endReason: null },
  ...{ resumable: false, notResumable: null },
  ...changes,
});

export const machine = (changes: Partial<Daemon> = {}): Daemon => ({
  ...{ id: "machine_1", hostname: "workbench", nickname: "workbench", platform: "linux", version: "0.1.0" },
  ...{ cdpConnected: false, ides: [], clis: [], acps: [], connectedAt: AT, lastSeenAt: AT, connected: true },
  ...changes,
});

export const PATCH = "--- a/app.py\n+++ b/app.py\n@@ -1,2 +1,2 @@\n import sys\n-old = 1\n+new = 2\n";

const option = (id: string, label: string, kind: ActionOption["kind"]): ActionOption => ({ id, label, kind });

export const ALLOW_OPTIONS = [
  option("once", "Allow once", "allow_once"),
  option("always", "Allow always", "allow_always"),
  option("no", "Reject", "reject_once"),
];

export const DATABASE_OPTIONS = [
  option("pg", "PostgreSQL (costs money)", "allow_once"),
  option("lite", "SQLite", "allow_once"),
  option("my", "MySQL", "allow_once"),
  option("stop", "Stop and think", "reject_once"),
];

export const question = (changes: Partial<PendingAction> = {}): PendingAction => ({
  ...{ id: "act_1", message: "Run `make test`?", options: ALLOW_OPTIONS, diff: null },
  ...changes,
});

export const tool = (changes: Partial<Tool> = {}): Tool => ({
  ...{ id: "call_1", kind: "execute", title: "make test", status: "completed", exitCode: 0 },
  ...{ diff: [], locations: [], startedAt: AT, endedAt: AT + 12_000 },
  ...changes,
});

export const message = (changes: Partial<Message> = {}): Message => ({
  ...{ id: "msg_1", index: 0, role: "assistant", kind: "text", content: "Done.", timestamp: AT },
  ...{ tool: null, source: null },
  ...changes,
});

const COMMAND = JSON.stringify({ name: "Bash", input: { command: "make test" } });

/** A call of a tool and its result, which is undefined while it runs. */
export function toolCall(changes: Partial<Tool> = {}, content = COMMAND): { call: Message; result: Message } {
  const used = tool(changes);
  return {
    call: message({ id: used.id, kind: "tool_call", content, tool: used }),
    result: message({ id: `${used.id}_result`, role: "tool", kind: "tool_result", content: "40 passed", tool: used }),
  };
}
