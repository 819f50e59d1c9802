import { expect, test } from "vitest";
import type { Message } from "@/api/client";
import { chatItems, readCall } from "./items";

let index = 0;
const message = (kind: Message["kind"], id: string, role: Message["role"] = "assistant"): Message => ({
  ...{ id, index: index++, content: id, timestamp: 0 },
  ...{ role, kind, tool: null, source: null },
});

test("results belong to their calls, in order, within a turn", () => {
  const messages = [
    message("tool_call", "a"),
    message("tool_call", "b"),
    message("text", "meanwhile"),
    message("tool_result", "of a", "tool"),
    message("tool_result", "of b", "tool"),
    message("tool_call", "never answered"),
    message("text", "next", "user"),
    message("tool_result", "of nothing", "tool"),
  ];
  const shown = chatItems(messages, []).map((item) => (item.kind === "tool" ? [item.id, item.result?.id] : item.id));
  expect(shown).toEqual([
    ["a", "of a"],
    ["b", "of b"],
    "meanwhile",
    ["never answered", undefined],
    "next",
    "of nothing",
  ]);
});

test("a result that names its call belongs to it, whichever is older", () => {
  const tool = (id: string) => ({ tool: { id } as Message["tool"] });
  const messages = [
    { ...message("tool_call", "a"), ...tool("1") },
    { ...message("tool_call", "b"), ...tool("2") },
    { ...message("tool_result", "of b", "tool"), ...tool("2") },
  ];
  const shown = chatItems(messages, []).map((item) => item.kind === "tool" && [item.id, item.result?.id]);
  expect(shown).toEqual([
    ["a", undefined],
    ["b", "of b"],
  ]);
});

test("of consecutive messages, the first one names the author, and one after a pause", () => {
  const at = (minutes: number, message: Message) => ({ ...message, timestamp: minutes * 60_000 });
  const messages = [
    at(1, message("text", "question", "user")),
    at(1, message("text", "a")),
    at(2, message("tool_call", "call")),
    at(3, message("text", "b")),
    at(9, message("text", "c")),
    at(9, message("text", "next", "user")),
    at(9, message("text", "d")),
  ];
  const named = chatItems(messages, [{ messageId: "e", text: "" }]).flatMap((item) =>
    "continues" in item && !item.continues ? item.id : [],
  );
  expect(named).toEqual(["question", "a", "c", "next", "d"]);
});

test("a message that is being written is shown once, from its pieces", () => {
  const drafts = [{ messageId: "a", text: "more of a" }];
  expect(chatItems([message("text", "a")], drafts)).toEqual([
    { kind: "draft", id: "a", draft: drafts[0], continues: false },
  ]);
});

test("an item keeps its place while its message is completed and others follow", () => {
  const drafts = [{ messageId: "a", text: "all of a" }];
  const ids = (...messages: Message[]) => chatItems(messages, drafts).map(({ id }) => id);
  expect(ids(message("text", "q"))).toEqual(["q", "a"]);
  expect(ids(message("text", "q"), message("text", "a"))).toEqual(["q", "a"]);
  expect(ids(message("text", "q"), message("text", "a"), message("text", "next"))).toEqual(["q", "a", "next"]);
});

test.each([
  ['{"name":"Read x.py","input":{"path":"x.py","why":"look"}}', "Read x.py", "look"],
  ['{"name":"Bash","input":{"command":"ls"}}', "Bash", "ls"],
  ['{"name":5,"input":null}', "Tool", ""],
  ["[1]", "Tool", ""],
  ["7", "7", ""],
  ["run it\nwith more", "run it", "with more"],
  ["", "", ""],
])("the call %j is %j", (content, name, summary) => {
  expect(readCall(content)).toMatchObject({ name, summary });
});

test.each([
  ['{"name":"Bash","input":{"command":"make test"}}', "make test"],
  ['{"name":"Shell","input":{"command":["git","diff"]}}', "git diff"],
  ['{"name":"Read","input":{"path":"x"}}', undefined],
  ['{"name":"Odd","input":{"command":{"a":1}}}', undefined],
])("the command of %j is %j", (content, command) => {
  expect(readCall(content).command).toBe(command);
});

test("what has not changed is the same item, so that it is not drawn again", () => {
  const messages = [message("text", "x"), message("tool_call", "c")];
  const [text, call] = chatItems(messages, []);
  const again = chatItems([...messages, message("text", "y")], []);
  expect(again[0]).toBe(text);
  expect(again[1]).toBe(call);
  const done = chatItems([...messages, message("tool_result", "r", "tool")], []);
  expect(done[1]).toMatchObject({ open: false, result: { id: "r" } });
});

test("a call without a result is open only in the newest turn", () => {
  const turns = [message("tool_call", "old"), message("text", "next", "user"), message("tool_call", "new")];
  const open = chatItems(turns, []).map((item) => item.kind === "tool" && item.open);
  expect(open).toEqual([false, false, true]);
});

test("a message of a kind that only a newer service has is shown as a message", () => {
  const unknown = message("hologram" as never, "x", "robot" as never);
  expect(chatItems([unknown], [])).toMatchObject([{ kind: "message", id: "x" }]);
});
