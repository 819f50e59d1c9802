import { beforeEach, expect, test, vi } from "vitest";
import { deltas } from "./deltas";

const delta = (revision: number, text: string, op: "append" | "replace" = "append") =>
  deltas.take({ targetId: "t", messageId: "m", revision, op, text });

beforeEach(() => {
  vi.stubGlobal("requestAnimationFrame", (draw: () => void) => draw());
  deltas.end("t");
});

test("pieces add up until the message is complete", () => {
  expect([delta(0, "a"), delta(1, "b")]).toEqual([true, true]);
  expect(deltas.read("t")).toMatchObject([{ messageId: "m", text: "ab" }]);
  deltas.complete("t", "m");
  expect(deltas.read("t")).toEqual([]);
});

test("a piece that came before is not added again", () => {
  delta(0, "a");
  expect(delta(0, "a")).toBe(true);
  expect(deltas.read("t")).toMatchObject([{ text: "a" }]);
});

test("a gap asks for the chat once, and shows no text with a hole", () => {
  delta(0, "a");
  expect([delta(2, "c"), delta(3, "d"), delta(4, "e")]).toEqual([false, true, true]);
  expect(deltas.read("t")).toEqual([]);
  expect(delta(5, "abcdef", "replace")).toBe(true);
  expect(deltas.read("t")).toMatchObject([{ text: "abcdef" }]);
});

test("a message that was begun before is read from the chat", () => {
  expect([delta(8, "x"), delta(9, "y")]).toEqual([false, true]);
  expect(deltas.read("t")).toEqual([]);
});

test("a piece of a kind that a newer service has is read from the chat", () => {
  delta(0, "a");
  expect(delta(1, "b", "insert" as never)).toBe(false);
  expect(delta(2, "c")).toBe(true);
  expect(deltas.read("t")).toEqual([]);
});
