import { expect, test } from "vitest";
import { safeLink } from "./links";

test.each(["https://a.example/b", "http://a.example/", "mailto:a@b.example"])(
  "a link of an agent may lead to %j",
  (href) => {
    expect(safeLink(href)).toBe(href);
  },
);

test.each([
  ...["javascript:alert(1)", " java\nscript:alert(1)", "data:text/html,x", "vbscript:x", "file:///etc/passwd"],
  ...["/account", "//evil.example", "", "streamdown:incomplete-link", undefined, 5],
])("a link of an agent does not lead to %j", (href) => {
  expect(safeLink(href)).toBeUndefined();
});
