import { expect, test } from "vitest";
import { languageOf } from "./languages";

test.each([
  ["python", "python"],
  ["py title=x", "python"],
  ["src/parser.py", "python"],
  ["web/Button.TSX", "typescript"],
  ["Dockerfile", "dockerfile"],
  ["Dockerfile.dev", "dockerfile"],
  ["Makefile", "makefile"],
  [".bashrc", "bash"],
  ["a/b.test.ts", "typescript"],
  ["LICENSE", undefined],
  ["constructor", undefined],
  ["__proto__", undefined],
  ["", undefined],
  [undefined, undefined],
])("%j is %j", (name, language) => {
  expect(languageOf(name)).toBe(language);
});
