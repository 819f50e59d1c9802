import { expect, test } from "vitest";
import { safeNext } from "./login-redirect";

test.each(["/inbox", "/sessions/machine_1%3Asession%3As?tab=debug", "/"])("a login may lead to %j", (path) => {
  expect(safeNext(path, "https://outrider.example")).toBe(path);
});

test.each([
  ...[
    "//evil.example",
    "https://evil.example",
    "/\\evil.example",
    "javascript:alert(1)",
    "\\\\evil",
    "/\t/evil.example",
  ],
  ...["", "/login?next=/login", 5, null, undefined, {}],
])("a login leads to the start instead of %j", (path) => {
  expect(safeNext(path, "https://outrider.example")).toBe("/");
});
