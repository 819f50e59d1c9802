import { expect, test } from "vitest";
import { en } from "./en";

test("every text is used", () => {
  const files = import.meta.glob<string>(["../**/*.{ts,tsx}", "!./en.ts"], {
    query: "?raw",
    import: "default",
    eager: true,
  });
  const sources = Object.values(files).join("\n");
  expect(Object.keys(en).filter((key) => !sources.includes(`"${key}"`))).toEqual([]);
});
