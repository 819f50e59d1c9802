// @vitest-environment happy-dom
import { act, screen, within } from "@testing-library/react";
import { beforeEach, expect, test, vi } from "vitest";
import { refusal, service, show } from "@/kit/render";
import { DATABASE_OPTIONS, PATCH, question } from "@/kit/samples";
import { Question } from "@/kit/stories";
import { SessionQuestion } from "./question-card";

const button = (name: string) => screen.getByRole("button", { name });
const answers = (taken: { body: unknown }[]) => taken.map(({ body }) => body);

/** Answer nothing for so long that a new card is not taken for one that follows an answer. */
beforeEach(() => void vi.spyOn(performance, "now").mockReturnValue(performance.now() + 60_000));

test("Approve and Reject say which options they choose, and choose them", async () => {
  const { taken } = service({ "POST approve": () => ({ success: true }) });
  const person = show(<Question action={question()} />);
  expect(screen.getByText("Approve: Allow once")).toBeDefined();
  expect(button("Approve").getAttribute("aria-describedby")).toBe(screen.getByText("Approve: Allow once").id);
  await person.click(button("Reject"));
  expect(answers(taken)).toEqual([{ action: "reject", optionId: "no", actionId: "act_1" }]);
});

test("a question with several choices offers each by its label, and nothing that would be a guess", async () => {
  const { taken } = service({ "POST approve": () => ({ success: true }) });
  const person = show(<Question action={question({ options: DATABASE_OPTIONS })} />);
  expect(screen.getAllByRole("button").map(({ textContent }) => textContent)).toEqual([
    "1PostgreSQL (costs money)",
    "2SQLite",
    "3MySQL",
    "4Stop and think",
  ]);
  await person.click(button("SQLite"));
  expect(answers(taken)).toEqual([{ action: "approve", optionId: "lite", actionId: "act_1" }]);
});

test("keys choose an option by its number, and say so where they cannot approve or reject", async () => {
  const { taken } = service({ "POST approve": () => ({ success: true }) });
  const action = question({ options: DATABASE_OPTIONS });
  const person = show(
    <SessionQuestion targetId="m:session:s" action={action} name="Demo agent" onElsewhere={() => {}} />,
  );
  button("SQLite").focus();
  await person.keyboard("a");
  expect((await screen.findByRole("alert")).textContent).toContain("Press the number of one");
  await person.keyboard("2");
  expect(answers(taken)).toEqual([{ action: "approve", optionId: "lite", actionId: "act_1" }]);
});

test("the buttons are disabled while an answer is under way, and only one answer is sent", async () => {
  const { taken } = service({ "POST approve": () => new Promise<object>(() => undefined) });
  const person = show(<Question action={question()} />);
  await person.click(button("Approve"));
  for (const name of ["Approve", "Reject", "More"]) expect(button(name)).toHaveProperty("disabled", true);
  await person.click(button("Reject"));
  expect(taken).toHaveLength(1);
});

test("an answer that holds from now on is asked about first", async () => {
  const { taken } = service({ "POST approve": () => ({ success: true }) });
  const person = show(<Question action={question()} />);
  await person.click(button("More"));
  await person.click(await screen.findByRole("menuitem", { name: "Allow always" }));
  const dialog = await screen.findByRole("alertdialog");
  expect(taken).toHaveLength(0);
  await person.click(within(dialog).getByRole("button", { name: "Allow always" }));
  await vi.waitFor(() =>
    expect(answers(taken)).toEqual([{ action: "approve", optionId: "always", actionId: "act_1" }]),
  );
});

test.each([
  [409, "NOT_PENDING", /answered elsewhere/],
  [503, "DAEMON_OFFLINE", /The machine is offline/],
])("a refusal with %i is said, and the question can be answered again", async (status, code, sentence) => {
  service({ "POST approve": () => refusal(status, "The machine is offline", code) });
  const person = show(<Question action={question()} />);
  await person.click(button("Approve"));
  expect((await screen.findByRole("alert")).textContent).toMatch(sentence);
});

test("the question of an edit shows the diff in place of its text, and in full in a dialog", async () => {
  const action = question({ message: `Edit app.py\n${PATCH}`, diff: [{ path: "app.py", patch: PATCH }] });
  const person = show(<Question action={action} />);
  const changes = screen.getByRole("region", { name: "Changes" });
  expect(await within(changes).findByText("app.py")).toBeDefined();
  expect(screen.getByText("Edit app.py")).toBeDefined();
  await person.click(button("Open in full"));
  const dialog = await screen.findByRole("dialog", { name: "Edit app.py" });
  expect(within(dialog).getByText("app.py")).toBeDefined();
});

test("a long question is shown as a whole when that is asked for", async () => {
  const person = show(<Question action={question({ message: "more\n".repeat(40) })} />);
  await person.click(button("Show all of it"));
  expect(screen.queryByRole("button", { name: "Show all of it" })).toBeNull();
});

test("a question that follows an answer at once cannot be answered for a second", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  service({ "POST approve": () => ({ success: true }) });
  const { rerender } = show(<Question key="1" action={question()} />);
  await act(async () => button("Approve").click());
  rerender(<Question key="2" action={question({ id: "act_2", message: "Delete it all?" })} />);
  expect(button("Approve")).toHaveProperty("disabled", true);
  await act(() => vi.advanceTimersByTimeAsync(1000));
  expect(button("Approve")).toHaveProperty("disabled", false);
  vi.useRealTimers();
});
