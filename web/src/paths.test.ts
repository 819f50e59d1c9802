import { expect, test } from "vitest";
import { safeLink } from "./session/links";
import { safeNext } from "./next";

test.each(["/inbox", "/sessions/machine_1%3Asession%3As?tab=debug", "/"])("a login may lead to %j", (path) => {
  expect(safeNext(path, "https://outrider.example")).toBe(path);
});

test.each([
  ...["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "\\\\evil", "/\t/evil.example"],
  ...["", "/login?next=/login", 5, null, undefined, {}],
])("a login leads to the start instead of %j", (path) => {
  expect(safeNext(path, "https://outrider.example")).toBe("/");
});

test.each(["https://a.example/b", "http://a.example/", "mailto:a@b.example"])("a link of an agent may lead to %j", (href) => {
  expect(safeLink(href)).toBe(href);
});

test.each([
  ...["javascript:alert(1)", " java\nscript:alert(1)", "data:text/html,x", "vbscript:x", "file:///etc/passwd"],
  ...["/account", "//evil.example", "", "streamdown:incomplete-link", undefined, 5],
])("a link of an agent does not lead to %j", (href) => {
  expect(safeLink(href)).toBeUndefined();
});
