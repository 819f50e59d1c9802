import { expect, test } from "vitest";
import { patchesOf, type ChangedFile } from "./patches";

const file = (path: string, oldPath: string | null = null): ChangedFile => ({
  ...{ path, oldPath, status: "modified" },
  ...{ additions: 1, deletions: 1, binary: false },
});
const part = (header: string, ...lines: string[]) =>
  [`diff --git ${header}`, "--- a", "+++ b", ...lines, ""].join("\n");

test("each file has its part of the patch, whatever their order", () => {
  const a = part("a/a.py b/a.py", "@@ -1 +1 @@", "-x", "+y");
  const b = part("a/old b.py b/new b.py", "@@ -1 +1 @@", " diff --git is no header here", "+diff --git a/a.py b/a.py");
  const patches = patchesOf([file("new b.py", "old b.py"), file("a.py"), file("image.png")], a + b);
  expect([...patches]).toEqual([
    ["new b.py", b],
    ["a.py", a],
  ]);
});

test("names that git quotes are found", () => {
  const odd = part('"a/tab\\there \\"x\\"" "b/tab\\there \\"x\\""', "+y");
  expect(patchesOf([file('tab\there "x"')], odd).size).toBe(1);
});

test("a patch that is cut has the parts that are left", () => {
  const a = part("a/a.py b/a.py", "+y");
  expect([...patchesOf([file("a.py"), file("b.py")], `${a}diff --gi`).keys()]).toEqual(["a.py"]);
  expect(patchesOf([file("a.py")], "").size).toBe(0);
});
