import { expect, test } from "vitest";
import { currentStep, stepsOf } from "./plan";

test("a plan has its steps, one of which is the current one", () => {
  const steps = stepsOf("- [x] Find where\n- [~] Keep the API\n- [ ] Run the tests");
  expect(steps?.map(({ state }) => state)).toEqual(["done", "current", "open"]);
  expect(currentStep(steps ?? [])?.text).toBe("Keep the API");
});

test("between two steps, the next one is the current one; after all, none is", () => {
  expect(currentStep(stepsOf("- [x] a\n- [ ] b\n- [ ] c") ?? [])?.text).toBe("b");
  expect(currentStep(stepsOf("- [x] a") ?? [])).toBeUndefined();
});

test.each(["", "I look at it first.", "- [x] a\nand then", "- a list"])("%j is no plan", (content) => {
  expect(stepsOf(content)).toBeUndefined();
});
