import { expect, test } from "vitest";
import type { ActionOption } from "@/api/client";
import { choicesOf } from "./choices";

const option = (id: string, kind: ActionOption["kind"]): ActionOption => ({ id, label: id, kind });
const once = option("yes", "allow_once");
const always = option("always", "allow_always");
const no = option("no", "reject_once");
const never = option("never", "reject_always");

test("a question with no kind twice is approved or rejected, once before always", () => {
  expect(choicesOf([always, once, never, no])).toEqual({
    kind: "approval",
    approve: once,
    reject: no,
    more: [always, never],
  });
  expect(choicesOf([always, never])).toMatchObject({ approve: always, reject: never, more: [] });
});

test.each([
  ["two options allow it once", [option("PostgreSQL", "allow_once"), option("SQLite", "allow_once"), no]],
  ["two options reject it", [once, no, option("tell it why", "reject_once")]],
  ["nothing rejects it", [once, always]],
  ["nothing allows it", [no, never]],
  ["there are no options", []],
])("all options are offered by their labels where %s", (_, options) => {
  expect(choicesOf(options)).toEqual({ kind: "choice", options });
});
