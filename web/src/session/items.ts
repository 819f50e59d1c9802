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
