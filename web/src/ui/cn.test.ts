import { expect, test } from "vitest";
import { buttonClass } from "./button";
import { cn } from "./cn";

test("of classes that contradict each other, the later one stays", () => {
  expect(cn("text-xs text-soft", false, "text-accent font-medium")).toBe("text-xs text-accent font-medium");
  expect(cn(buttonClass("plain", true), "rounded-full").split(" ")).not.toContain("rounded-md");
});

test("a size of text and a colour do not contradict each other", () => {
  expect(cn("text-sm text-on-accent border border-bad-line bg-bad-soft")).toBe(
    "text-sm text-on-accent border border-bad-line bg-bad-soft",
  );
});
