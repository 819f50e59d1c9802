// @vitest-environment happy-dom
import { screen, within } from "@testing-library/react";
import { expect, test } from "vitest";
import { show } from "@/kit/render";
import { message, PATCH, toolCall } from "@/kit/samples";
import { ItemView } from "./item-view";
import { ToolCall } from "./tool-call";

const row = () => screen.getByRole("button", { expanded: false });

test("a command that failed says its exit code, without being opened", () => {
  show(<ToolCall {...toolCall({ status: "failed", exitCode: 2 })} running={false} />);
  expect(row().textContent).toContain("$ make test");
  expect(row().textContent).toContain("exit 2");
});

test("a command that succeeded says how long it took, and opened what it printed", async () => {
  const person = show(<ToolCall {...toolCall()} running={false} />);
  expect(row().textContent).toContain("12s");
  expect(within(row()).getByRole("img", { name: "completed" })).toBeDefined();
  expect(screen.queryByText("40 passed")).toBeNull();
  await person.click(row());
  expect(screen.getByText("40 passed")).toBeDefined();
  expect(screen.queryByText(/"command"/)).toBeNull();
});

test("an edit says how many lines it changed, and opened which ones", async () => {
  const input = '{"name": "Edit", "input": {"path": "app.py"}}';
  const changes = {
    kind: "edit",
    title: "Edit app.py",
    exitCode: null,
    diff: [{ path: "app.py", patch: PATCH }],
  } as const;
  const person = show(<ToolCall {...toolCall({ ...changes, diff: [...changes.diff] }, input)} running={false} />);
  expect(row().textContent).toContain("+1 −1");
  await person.click(row());
  const file = await screen.findByText("app.py");
  expect(file.closest("li")?.textContent).toContain("new = 2");
});

test("a call without a result runs as long as its turn does", () => {
  const { call } = toolCall({ status: "running", exitCode: null, endedAt: null });
  const { rerender } = show(<ToolCall call={call} result={undefined} running />);
  expect(screen.getByText("Running")).toBeDefined();
  rerender(<ToolCall call={call} result={undefined} running={false} />);
  expect(screen.queryByText("Running")).toBeNull();
});

test("a plan shows the step that it is at, and opened all of them", async () => {
  const plan = message({ kind: "thinking", content: "- [x] Find where\n- [~] Keep the API\n- [ ] Test" });
  const item = { kind: "message", id: "1", message: plan, continues: false } as const;
  const person = show(<ItemView item={item} name="Demo agent" generating={false} />);
  expect(row().textContent).toContain("Plan 1 of 3");
  expect(row().textContent).toContain("Keep the API");
  await person.click(row());
  expect(screen.getAllByRole("listitem").map(({ textContent }) => textContent)).toEqual([
    "Find where",
    "Keep the API",
    "Test",
  ]);
  expect(screen.getAllByRole("img", { name: "in progress" })).toHaveLength(1);
});

test("what was read from a screen keeps its lines and columns, and is no Markdown", () => {
  const content = "# build\n  * a.py   1\n  * b.py  12";
  const item = { kind: "message", id: "1", message: message({ source: "screen", content }), continues: false } as const;
  show(<ItemView item={item} name="Demo agent" generating={false} />);
  expect(document.querySelector("pre")?.textContent).toBe(content);
  expect(screen.queryByRole("heading")).toBeNull();
});
