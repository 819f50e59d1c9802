import type { Message } from "@/api/client";
import type { Draft } from "@/live/deltas";

/** What the chat shows in one place: a message, or a tool call with its result. */
export type Item =
  | { kind: "message"; id: string; message: Message }
  | { kind: "tool"; id: string; call: Message; result: Message | undefined }
  | { kind: "draft"; id: string; draft: Draft };

/**
 * Return what to show for messages. A result belongs to the oldest call before it that has none; a
 * message that is being written is shown from its draft, which is newer.
 */
export function chatItems(messages: readonly Message[], drafts: readonly Draft[]): Item[] {
  const writing = new Set(drafts.map((draft) => draft.messageId));
  const items: Item[] = [];
  const open: Extract<Item, { kind: "tool" }>[] = [];
  for (const message of messages) {
    if (writing.has(message.id)) continue;
    if (message.kind === "tool_call") {
      const item: Item = { kind: "tool", id: message.id, call: message, result: undefined };
      items.push(item);
      open.push(item);
    } else if (message.kind === "tool_result" && open.length > 0) {
      (open.shift() as (typeof open)[number]).result = message;
    } else {
      if (message.role === "user") open.length = 0;
      items.push({ kind: "message", id: message.id, message });
    }
  }
  for (const draft of drafts) items.push({ kind: "draft", id: draft.messageId, draft });
  return items;
}

/** What a tool call is about, for one line, and its input as text. */
export interface Call {
  id: string | undefined;
  name: string;
  summary: string;
  input: string;
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
    return { id: undefined, name: first.slice(0, 80), summary: rest.join(" ").slice(0, 200), input: content };
  }
  if (typeof parsed !== "object" || parsed === null) return { id: undefined, name: content.slice(0, 80), summary: "", input: content };
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
  };
}
