import type { HunkData } from "react-diff-view";
import { expect, test } from "vitest";
import { firstLines, withShortLines } from "./long-diff";

const hunk = (...contents: string[]) =>
  ({ content: "@@", changes: contents.map((content) => ({ content })) }) as HunkData;
const contents = (hunks: HunkData[]) => hunks.map((hunk) => hunk.changes.map((change) => change.content));

test("a long line ends with a note about its rest", () => {
  const [changed] = withShortLines([hunk("short", "x".repeat(900_000))], (left) => `[${left} more]`);
  expect(changed?.changes[0]?.content).toBe("short");
  expect(changed?.changes[1]?.content).toBe(`${"x".repeat(2000)} [898000 more]`);
});

test("the first lines are those of the first hunks", () => {
  const hunks = [hunk("a", "b"), hunk("c", "d"), hunk("e")];
  expect(contents(firstLines(hunks, 3))).toEqual([["a", "b"], ["c"]]);
  expect(firstLines(hunks, 5)).toEqual(hunks);
  expect(firstLines(hunks, 2)[0]).toBe(hunks[0]);
});
