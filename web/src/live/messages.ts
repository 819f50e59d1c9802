import type { Message } from "@/api/client";

export interface Chat {
  messages: Message[];
  totalMessages: number;
}

/** Return the chat with a message in its place, which an earlier version of it may have. */
export function withMessage<C extends Chat>(chat: C, message: Message): C {
  const messages = chat.messages;
  let at = messages.length;
  while (at > 0 && (messages[at - 1] as Message).index > message.index) at -= 1;
  const replaces = at > 0 && (messages[at - 1] as Message).index === message.index;
  const next = [...messages.slice(0, replaces ? at - 1 : at), message, ...messages.slice(at)];
  return { ...chat, messages: next, totalMessages: Math.max(chat.totalMessages, message.index + 1) };
}

/**
 * Return what was read of a chat's end, together with the messages before it that had been read
 * already.
 */
export function keepEarlier<C extends Chat>(before: C | undefined, read: C): C {
  const first = read.messages[0];
  if (!before || !first) return read;
  const earlier = before.messages.filter((message) => message.index < first.index);
  if (earlier.at(-1)?.index !== first.index - 1) return read;
  return { ...read, messages: [...earlier, ...read.messages] };
}
