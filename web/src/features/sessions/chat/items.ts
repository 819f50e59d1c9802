import type { Message } from "@/api/client";
import type { Draft } from "@/live/deltas";

/** What the chat shows in one place: a message, or a tool call with its result. */
export type Item =
  | { kind: "message"; id: string; message: Message; continues: boolean }
  | { kind: "tool"; id: string; call: Message; result: Message | undefined; open: boolean }
  | { kind: "draft"; id: string; draft: Draft; continues: boolean };

type ToolItem = Extract<Item, { kind: "tool" }>;
type OpenTool = Omit<ToolItem, "kind" | "id">;

/** The items of messages that have been shown: what has not changed is not drawn again. */
const shownItems = new WeakMap<Message, Item>();

function itemOf(message: Message, continues: boolean): Item {
  const old = shownItems.get(message);
  if (old?.kind === "message" && old.continues === continues) return old;
  const item: Item = { kind: "message", id: message.id, message, continues };
  shownItems.set(message, item);
  return item;
}

function toolItem({ call, result, open }: OpenTool): Item {
  const old = shownItems.get(call);
  if (old?.kind === "tool" && old.result === result && old.open === open) return old;
  const item: Item = { kind: "tool", id: call.id, call, result, open };
  shownItems.set(call, item);
  return item;
}

/** After so long, the same author's next message says again who wrote it, and when. */
const PAUSE_MS = 5 * 60_000;

/** Return items, of which those that continue what their author says do not name the author again. */
function withAuthors(shown: (Message | Draft | OpenTool)[]): Item[] {
  let author: string | undefined;
  let at = 0;
  return shown.map((entry) => {
    if ("call" in entry) return toolItem(entry);
    if ("messageId" in entry) {
      const continues = author === "assistant";
      author = "assistant";
      return { kind: "draft", id: entry.messageId, draft: entry, continues };
    }
    if (entry.kind !== "text") return itemOf(entry, false);
    const continues = entry.role !== "user" && entry.role === author && entry.timestamp - at < PAUSE_MS;
    if (!continues) at = entry.timestamp;
    author = entry.role;
    return itemOf(entry, continues);
  });
}

/** Return the call that a result belongs to: the one with its id, or else the oldest. */
function callOf(result: Message, waiting: OpenTool[]): OpenTool | undefined {
  const id = result.tool?.id;
  return (id && waiting.find(({ call }) => call.tool?.id === id)) || waiting[0];
}

/**
 * Return what to show for messages. A result belongs to the oldest call of its turn that has none,
 * unless it says which one, and `open` says that a call of the newest turn has none yet. A message
 * that is being written is shown from its draft, which is newer, and in the place of the message if
 * that has one: items that changed places would make the list of the chat draw one of them twice.
 */
export function chatItems(messages: readonly Message[], drafts: readonly Draft[]): Item[] {
  const writing = new Map(drafts.map((draft) => [draft.messageId, draft]));
  const shown: (Message | Draft | OpenTool)[] = [];
  let waiting: OpenTool[] = [];
  for (const message of messages) {
    const draft = writing.get(message.id);
    const tool = message.kind === "tool_result" ? callOf(message, waiting) : undefined;
    if (draft) {
      writing.delete(message.id);
      shown.push(draft);
    } else if (message.kind === "tool_call") {
      const opened: OpenTool = { call: message, result: undefined, open: true };
      shown.push(opened);
      waiting.push(opened);
    } else if (tool) {
      tool.result = message;
      tool.open = false;
      waiting = waiting.filter((other) => other !== tool);
    } else {
      if (message.role === "user") {
        for (const other of waiting) other.open = false;
        waiting = [];
      }
      shown.push(message);
    }
  }
  shown.push(...writing.values());
  return withAuthors(shown);
}

/** What a tool call is about, for one line, and its input as text. */
interface Call {
  id: string | undefined;
  name: string;
  summary: string;
  input: string;
  /** The language of the input, if that is known. */
  language: string | undefined;
  /** What is executed, if it is a command. */
  command: string | undefined;
}

/**
 * Read the content of a tool call: JSON with a name and an input, or text as the agent wrote it. It
 * comes from an agent, so nothing about its form is certain.
 */
export function readCall(content: string): Call {
  let parsed: unknown;
  try {
    parsed = JSON.parse(content);
  } catch {
    const [first = "", ...rest] = content.split("\n");
    return {
      id: undefined,
      name: first.slice(0, 80),
      summary: rest.join(" ").slice(0, 200),
      input: content,
      language: undefined,
      command: undefined,
    };
  }
  if (typeof parsed !== "object" || parsed === null) {
    return {
      id: undefined,
      name: content.slice(0, 80),
      summary: "",
      input: content,
      language: undefined,
      command: undefined,
    };
  }
  const { id, name, input } = parsed as Record<string, unknown>;
  const label = typeof name === "string" && name ? name : "Tool";
  const values: Record<string, unknown> = typeof input === "object" && input !== null ? { ...input } : {};
  const command = Array.isArray(values.command) ? values.command.join(" ") : values.command;
  const summary = Object.values(values)
    .filter((value) => typeof value === "string" && !label.includes(value))
    .join("  ");
  return {
    id: typeof id === "string" ? id : undefined,
    name: label,
    summary: summary.slice(0, 200),
    input: typeof input === "string" ? input : input === undefined ? content : JSON.stringify(input, null, 2),
    language: typeof input === "string" ? undefined : "json",
    command: typeof command === "string" && command ? command : undefined,
  };
}
