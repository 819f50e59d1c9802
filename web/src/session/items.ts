import type { Message } from "@/api/client";
import type { Draft } from "@/live/deltas";

/** What the chat shows in one place: a message, or a tool call with its result. */
export type Item =
  | { kind: "message"; id: string; message: Message }
  | { kind: "tool"; id: string; call: Message; result: Message | undefined; open: boolean }
  | { kind: "draft"; id: string; draft: Draft };

type ToolItem = Extract<Item, { kind: "tool" }>;

/** The items of messages that have been shown: what has not changed is not drawn again. */
const known = new WeakMap<Message, Item>();

function itemOf(message: Message): Item {
  const item = known.get(message) ?? { kind: "message", id: message.id, message };
  known.set(message, item);
  return item;
}

function toolItem({ call, result, open }: Omit<ToolItem, "kind" | "id">): Item {
  const old = known.get(call);
  if (old?.kind === "tool" && old.result === result && old.open === open) return old;
  const item: Item = { kind: "tool", id: call.id, call, result, open };
  known.set(call, item);
  return item;
}

const draftItem = (draft: Draft): Item => ({ kind: "draft", id: draft.messageId, draft });

/**
 * Return what to show for messages. A result belongs to the oldest call of its turn that has none,
 * and `open` says that a call of the newest turn has none yet. A message that is being written is
 * shown from its draft, which is newer, and in the place of the message if that has one: items that
 * changed places would make the list of the chat draw one of them twice.
 */
export function chatItems(messages: readonly Message[], drafts: readonly Draft[]): Item[] {
  const writing = new Map(drafts.map((draft) => [draft.messageId, draft]));
  const shown: (Message | Draft | { call: Message; result: Message | undefined; open: boolean })[] = [];
  let waiting: { call: Message; result: Message | undefined; open: boolean }[] = [];
  for (const message of messages) {
    const draft = writing.get(message.id);
    if (draft) {
      writing.delete(message.id);
      shown.push(draft);
    } else if (message.kind === "tool_call") {
      const tool = { call: message, result: undefined, open: true };
      shown.push(tool);
      waiting.push(tool);
    } else if (message.kind === "tool_result" && waiting.length > 0) {
      const tool = waiting.shift() as (typeof waiting)[number];
      tool.result = message;
      tool.open = false;
    } else {
      if (message.role === "user") {
        for (const tool of waiting) tool.open = false;
        waiting = [];
      }
      shown.push(message);
    }
  }
  shown.push(...writing.values());
  return shown.map((one) => ("call" in one ? toolItem(one) : "messageId" in one ? draftItem(one) : itemOf(one)));
}

/** What a tool call is about, for one line, and its input as text. */
export interface Call {
  id: string | undefined;
  name: string;
  summary: string;
  input: string;
  /** The language of the input, if that is known. */
  language: string | undefined;
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
    return { id: undefined, name: first.slice(0, 80), summary: rest.join(" ").slice(0, 200), input: content, language: undefined };
  }
  if (typeof parsed !== "object" || parsed === null) {
    return { id: undefined, name: content.slice(0, 80), summary: "", input: content, language: undefined };
  }
  const { id, name, input } = parsed as Record<string, unknown>;
  const label = typeof name === "string" && name ? name : "Tool";
  const values = typeof input === "object" && input !== null ? input : {};
  const summary = Object.values(values)
    .filter((value) => typeof value === "string" && !label.includes(value))
    .join("  ");
  return {
    id: typeof id === "string" ? id : undefined,
    name: label,
    summary: summary.slice(0, 200),
    input: typeof input === "string" ? input : input === undefined ? content : JSON.stringify(input, null, 2),
    language: typeof input === "string" ? undefined : "json",
  };
}
