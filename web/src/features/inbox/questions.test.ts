import { expect, test } from "vitest";
import type { Approval } from "@/api/client";
import { withOpen } from "./questions";

const approval = (id: string) => ({ action: { id } }) as Approval;
const [a, b, c] = [approval("a"), approval("b"), approval("c")];
const shown = (questions: ReturnType<typeof withOpen>) =>
  questions.map((question) => `${question.approval.action.id}${question.open ? "" : " answered"}`);

test("an answered question keeps its place, and a new one comes after all others", () => {
  const before = withOpen([], [a, b]);
  const after = withOpen(before, [c, b]);
  expect(shown(after)).toEqual(["a answered", "b", "c"]);
  expect(shown(withOpen(after, [a, b, c]))).toEqual(["a", "b", "c"]);
});

test("the same questions are the same list", () => {
  const before = withOpen([], [a, b]);
  expect(withOpen(before, [a, b])).toBe(before);
  const answered = withOpen(before, [b]);
  expect(withOpen(answered, [b])).toBe(answered);
});

test("of the answered ones, the newest stay", () => {
  const many = Array.from({ length: 60 }, (_, i) => approval(String(i)));
  const left = withOpen(withOpen([], many), [approval("59")]);
  expect(shown(left).slice(0, 2)).toEqual(["9 answered", "10 answered"]);
  expect(left).toHaveLength(51);
});
