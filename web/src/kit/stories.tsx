/** Every component in every state that a person may see it in. */
import { Check as CheckIcon, Inbox, Plus } from "lucide-react";
import type { ReactNode } from "react";
import type { PendingAction } from "@/api/client";
import { QuestionCard } from "@/features/inbox/question-card";
import { useAnswer } from "@/features/inbox/use-answer";
import { Load } from "@/features/machines/load";
import { Composer } from "@/features/sessions/chat/composer";
import { ItemView } from "@/features/sessions/chat/item-view";
import { Markdown } from "@/features/sessions/chat/markdown";
import { ToolCall } from "@/features/sessions/chat/tool-call";
import { Controls } from "@/features/sessions/controls";
import { Header, Unread } from "@/features/sessions/session-frame";
import { SessionRow } from "@/features/sessions/session-row";
import { SecretOnce } from "@/features/webhooks/secret-once";
import { Button } from "@/ui/button";
import { CodeBlock } from "@/ui/code/code";
import { FileDiffs } from "@/ui/code/file-diffs";
import { CopyButton } from "@/ui/copy";
import { Alert, Empty, Skeleton } from "@/ui/feedback";
import { Check, Field, PasswordField, SearchBox, Select } from "@/ui/field";
import { InlineCode } from "@/ui/inline-code";
import { Mark } from "@/ui/mark";
import { Menu } from "@/ui/menu";
import { Status } from "@/ui/status";
import { Age } from "@/ui/time";
import { ALLOW_OPTIONS, DATABASE_OPTIONS, machine, message, PATCH, question, session, toolCall } from "./samples";

const ignore = () => undefined;

/** A question with what answers it, which each card has of its own. */
export function Question({ action, name = "Demo agent" }: { action: PendingAction; name?: string }) {
  const answer = useAnswer("machine_1:session:session_1", action);
  return <QuestionCard action={action} name={name} answer={answer} />;
}

const system = {
  ...{ hostname: "workbench", arch: "x64", platform: "linux", release: "6.1", cpus: 2 },
  ...{ totalMem: 8e9, freeMem: 3e9 },
};
const load = (now: number) => <Load system={{ ...system, loadavg: [now, 1, 1], uptime: 60 }} />;
const item = (changes: Parameters<typeof message>[0]) => (
  <ItemView
    item={{ kind: "message", id: "1", message: message(changes), continues: false }}
    name="Demo agent"
    generating={false}
  />
);
const composer = (id: string, status: string) => <Composer targetId={id} status={status} name="Demo agent" pictures />;
const row = (changes: Parameters<typeof session>[0], on = machine()) => (
  <ul>
    <SessionRow place={{ session: session(changes), machine: on }} />
  </ul>
);
const STATUSES = [
  ...["waiting_approval", "generating", "error", "idle", "ended", "online", "reconnecting", "offline"],
  ...["active", "paused", "disabled", "pending", "succeeded", "failed", "of a newer service"],
];
const MARKDOWN = `## Two failures

1. \`parser.py\`, a **loop** that [never ends](https://example.org/log)
2. the *log*

> They are gone.

- [x] done
- [ ] open

| file | lines |
|---|--:|
| a.py | 3 |

\`\`\`python
print("fixed")
\`\`\`
`;
const command = toolCall();
const failed = toolCall({ status: "failed", exitCode: 2 });
const edit = toolCall(
  { kind: "edit", title: "Edit app.py", exitCode: null, diff: [{ path: "app.py", patch: PATCH }] },
  '{"name": "Edit", "input": {"path": "app.py"}}',
);
const running = toolCall({ status: "running", exitCode: null, endedAt: null });

export const STORIES: Record<string, Record<string, ReactNode>> = {
  Button: {
    primary: <Button look="primary">Launch</Button>,
    plain: <Button>Try again</Button>,
    quiet: <Button look="quiet">Disconnect</Button>,
    danger: <Button look="danger">Delete</Button>,
    "with an icon": <Button icon={<Plus className="size-4" />}>New webhook</Button>,
    "an icon alone": <Button icon={<CheckIcon className="size-4" />} aria-label="Choose" />,
    busy: <Button busy>Test</Button>,
    disabled: <Button disabled>Create</Button>,
    copy: <CopyButton text="outrider up" />,
    menu: <Menu label="More" items={[{ label: "Allow always", onSelect: ignore }]} />,
  },
  Fields: {
    field: <Field label="Directory" hint="Where the agent works" placeholder="~/project" />,
    filled: <Field label="Branch" defaultValue="topic" />,
    disabled: <Field label="Branch" defaultValue="topic" disabled />,
    password: <PasswordField defaultValue="secret" />,
    select: (
      <Select label="Machine">
        <option>workbench</option>
      </Select>
    ),
    "select in a line": (
      <Select inline label="Status">
        <option>All</option>
      </Select>
    ),
    check: <Check label="All events" checked onChange={ignore} />,
    "check, open": <Check label="agent:error" mono checked={false} onChange={ignore} />,
    search: <SearchBox label="Filter" placeholder="Title, directory or machine" onChange={ignore} />,
  },
  Status: Object.fromEntries(STATUSES.map((value) => [value, <Status key={value} value={value} />])),
  Feedback: {
    alert: <Alert>The model is overloaded. Start `outrider daemon` again.</Alert>,
    "neutral alert": <Alert neutral>This question was answered elsewhere.</Alert>,
    empty: (
      <Empty icon={<Inbox />} title="Nothing waits for you" hint="Questions of agents appear here.">
        <Button>Go to the sessions</Button>
      </Empty>
    ),
    loading: <Skeleton />,
    "inline code": <InlineCode text="`outrider up` prints the login." />,
    age: <Age at={Date.UTC(2024, 4, 17)} />,
    mark: <Mark className="size-6" />,
    secret: <SecretOnce secret="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" done="Done" onDone={ignore} />,
  },
  "Row of a session": {
    waiting: row({ status: "waiting_approval" }),
    generating: row({ status: "generating", title: "Write the changelog" }),
    error: row({ status: "error", error: "The model is overloaded" }),
    "idle, without a title": row({ title: null }),
    "in a worktree": row({
      worktree: { branch: "topic", path: "/srv/billing.worktrees/topic", created: true, removed: false },
    }),
    "of an offline machine": row({ status: "waiting_approval" }, machine({ connected: false })),
  },
  "Head of a session": {
    running: (
      <Header
        title="Make the parser strict"
        status="generating"
        facts={["Demo agent", "/srv/parser"]}
        action={<Button>Stop</Button>}
      />
    ),
    "being read": <Unread title="Make the parser strict" />,
    refused: (
      <Unread
        title="Session"
        query={{ error: new Error("The machine is offline."), isFetching: false, refetch: ignore }}
      />
    ),
    controls: (
      <Controls
        phone
        busy={false}
        set={ignore}
        controls={[
          { id: "model", label: "Model", type: "select", options: ["large", "small"], value: "large" },
          { id: "plan", label: "Plan first", type: "toggle", options: [], value: true },
        ]}
      />
    ),
    load: load(1.5),
    overloaded: load(7.5),
  },
  Question: {
    command: <Question action={question()} />,
    choice: <Question action={question({ message: "Which database shall I use?", options: DATABASE_OPTIONS })} />,
    edit: (
      <Question action={question({ message: `Edit app.py\n${PATCH}`, diff: [{ path: "app.py", patch: PATCH }] })} />
    ),
    "without options": <Question action={question({ options: [] })} />,
    long: <Question action={question({ message: "one more line\n".repeat(40) })} />,
    "hostile label": (
      <Question
        action={question({ options: [...ALLOW_OPTIONS.slice(1), { ...ALLOW_OPTIONS[0]!, label: "Allow\u202eecno" }] })}
      />
    ),
  },
  "Tool call": {
    succeeded: <ToolCall {...command} running={false} />,
    failed: <ToolCall {...failed} running={false} />,
    edit: <ToolCall {...edit} running={false} />,
    running: <ToolCall call={running.call} result={undefined} running />,
    read: (
      <ToolCall {...toolCall({ kind: "read", title: "Read a.py", exitCode: null, endedAt: null })} running={false} />
    ),
    search: <ToolCall {...toolCall({ kind: "search", title: "Search TODO", exitCode: null })} running={false} />,
    fetch: <ToolCall {...toolCall({ kind: "fetch", title: "Fetch a page", exitCode: null })} running={false} />,
    "of an old agent": <ToolCall call={{ ...command.call, tool: null }} result={undefined} running={false} />,
  },
  Message: {
    "of the user": item({ role: "user", content: "Make the tests pass" }),
    "of the agent": item({}),
    plan: item({ kind: "thinking", content: "- [x] Find where\n- [~] Keep the API\n- [ ] Test" }),
    thinking: item({ kind: "thinking", content: "I look at the failures first." }),
    "of a screen": item({ source: "screen", content: "# build\n  * a.py   1\n  * b.py  12" }),
    Markdown: <Markdown text={MARKDOWN} />,
    code: <CodeBlock text={'def main():\n    print("fixed")\n'} language="python" />,
    diff: <FileDiffs diffs={[{ path: "app.py", patch: PATCH }]} />,
    "unknown diff": <FileDiffs diffs={[{ path: "app.py", patch: "" }]} />,
  },
  "Message box": {
    idle: composer("machine_1:session:idle", "idle"),
    working: composer("machine_1:session:busy", "generating"),
  },
};
