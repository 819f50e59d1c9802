import { expect, test } from "vitest";
import type { Message } from "@/api/client";
import { keepEarlier, withMessage } from "./messages";

const message = (index: number, content = `${index}`): Message => ({
  ...{ id: `msg_${index}`, index, content, timestamp: 0 },
  ...{ role: "assistant", kind: "text", tool: null, source: null },
});
const chat = (...indexes: number[]) => ({ messages: indexes.map((i) => message(i)), totalMessages: 9 });
const indexes = (of: { messages: Message[] }) => of.messages.map((message) => message.index);

test("a message goes where its index says, once", () => {
  expect(indexes(withMessage(chat(3, 4), message(5)))).toEqual([3, 4, 5]);
  expect(indexes(withMessage(chat(3, 5), message(4)))).toEqual([3, 4, 5]);
  expect(indexes(withMessage(chat(), message(4)))).toEqual([4]);
  const changed = withMessage(chat(3, 4, 5), message(4, "now complete"));
  expect(indexes(changed)).toEqual([3, 4, 5]);
  expect(changed.messages[1]?.content).toBe("now complete");
});

test("a message behind the last one counts", () => {
  expect(withMessage(chat(8), message(12)).totalMessages).toBe(13);
  expect(withMessage(chat(8), message(8)).totalMessages).toBe(9);
});

test("messages that were read before stay when the chat's end is read again", () => {
  expect(indexes(keepEarlier(chat(2, 3, 4, 5), chat(4, 5, 6)))).toEqual([2, 3, 4, 5, 6]);
  expect(indexes(keepEarlier(chat(2, 3), chat(6, 7)))).toEqual([6, 7]);
  expect(indexes(keepEarlier(undefined, chat(6)))).toEqual([6]);
  expect(indexes(keepEarlier(chat(1), chat()))).toEqual([]);
});
