import { expect, test } from "vitest";
import { linesChanged } from "./file-diffs";

test("lines of patches are counted without their headers", () => {
  const edit = "--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,3 @@\n same\n-old\n+new\n+---\n";
  const added = "--- /dev/null\n+++ b/y.py\n@@ -0,0 +1 @@\n+first\n";
  expect(
    linesChanged([
      { path: "x.py", patch: edit },
      { path: "y.py", patch: added },
    ]),
  ).toEqual({ additions: 3, deletions: 1 });
  expect(linesChanged([{ path: "z", patch: "" }])).toEqual({ additions: 0, deletions: 0 });
});
