import { expect, test } from "vitest";
import { notArrived, type Outgoing } from "./outgoing";

const sent = (key: string, text: string, changes: Partial<Outgoing> = {}): Outgoing => ({
  key,
  text,
  before: new Set(),
  ...changes,
});
const keys = (outgoing: readonly Outgoing[]) => outgoing.map((message) => message.key);

test("a message whose event overtakes the response is shown once", () => {
  expect(keys(notArrived([sent("a", "hello ")], [{ id: "m1", text: "hello" }]))).toEqual([]);
  expect(keys(notArrived([sent("a", "hello")], [{ id: "m1", text: "other" }]))).toEqual(["a"]);
});

test("an earlier message of the same text is another one", () => {
  const again = sent("a", "go on", { before: new Set(["m1"]) });
  expect(keys(notArrived([again], [{ id: "m1", text: "go on" }]))).toEqual(["a"]);
});

test("of two messages of the same text, one that has arrived hides one", () => {
  const both = [sent("a", "go on"), sent("b", "go on")];
  expect(keys(notArrived(both, [{ id: "m1", text: "go on" }]))).toEqual(["b"]);
  expect(
    keys(notArrived([sent("a", "go on", { id: "m1" }), sent("b", "go on")], [{ id: "m1", text: "go on" }])),
  ).toEqual(["b"]);
});

test("with an id, only that message is it", () => {
  const accepted = sent("a", "hello", { id: "m2" });
  expect(keys(notArrived([accepted], [{ id: "m1", text: "hello" }]))).toEqual(["a"]);
  expect(keys(notArrived([accepted], [{ id: "m2", text: "changed by the agent" }]))).toEqual([]);
});

test("a message that has arrived and was taken back again is not sent once more", () => {
  const both = [sent("a", "go on"), sent("b", "go on")];
  const left = notArrived(both, [{ id: "m1", text: "go on" }]);
  expect(keys(left)).toEqual(["b"]);
  expect(notArrived(left, [{ id: "m1", text: "go on" }])).toBe(left);
  expect(
    keys(
      notArrived(left, [
        { id: "m1", text: "go on" },
        { id: "m2", text: "go on" },
      ]),
    ),
  ).toEqual([]);
  expect(notArrived([], [])).toEqual([]);
});
