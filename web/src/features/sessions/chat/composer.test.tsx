// @vitest-environment happy-dom
import { act, fireEvent, screen, within } from "@testing-library/react";
import { expect, test, vi } from "vitest";
import { queryClient } from "@/api/query-client";
import { keys } from "@/api/query-keys";
import { refusal, service, show, type Service } from "@/kit/render";
import { Composer } from "./composer";

const TARGET = "machine_1:session:session_1";
const box = () => screen.getByRole<HTMLTextAreaElement>("textbox", { name: "Message" });
const button = (name: string) => screen.getByRole("button", { name });
const sent = ({ taken }: Service) => taken.filter(({ name }) => name === "POST chat").map(({ body }) => body);

function composer({ status = "idle", pictures = true } = {}) {
  return <Composer targetId={TARGET} status={status} name="Demo agent" pictures={pictures} />;
}

/** The chat and the queue, as they have been read. */
function read(queued: string[] = []): void {
  const messages = queued.map((text, i) => ({ messageId: `msg_${i}`, text, createdAt: 1 }));
  queryClient.setQueryData(keys.queue(TARGET), messages);
  queryClient.setQueryData(keys.chat(TARGET), { messages: [], totalMessages: 0 });
}

test("Enter sends, Shift+Enter begins a new line", async () => {
  read();
  const server = service({ "POST chat": () => ({ messageId: "msg_own" }) });
  const person = show(composer());
  await person.type(box(), "one{Shift>}{Enter}{/Shift}two");
  expect(box().value).toBe("one\ntwo");
  expect(sent(server)).toEqual([]);
  await person.type(box(), "{Enter}");
  expect(sent(server)).toEqual([{ message: "one\ntwo", delivery: "queue" }]);
  expect(box().value).toBe("");
});

test("while the agent works, a message is queued or interrupts it, and a draft stays", async () => {
  read();
  const server = service({ "POST chat": () => ({ messageId: "msg_own" }), "POST interrupt": () => ({}) });
  const person = show(composer({ status: "generating" }));
  expect(screen.queryByRole("button", { name: "Send" })).toBeNull();
  await person.type(box(), "a thought");
  await person.click(button("Interrupt"));
  expect(box().value).toBe("a thought");
  await person.click(button("Interrupt and send"));
  expect(sent(server)).toEqual([{ message: "a thought", delivery: "interrupt" }]);
  person.rerender(composer());
  expect(screen.queryByRole("button", { name: "Interrupt" })).toBeNull();
  expect(button("Send")).toBeDefined();
});

test("what is typed stays for the next time that the session is opened", async () => {
  read();
  const person = show(composer());
  await person.type(box(), "a draft");
  person.rerender(<p>another page</p>);
  person.rerender(composer());
  expect(box().value).toBe("a draft");
});

test.each([
  [503, "DAEMON_OFFLINE", "Not sent"],
  [504, "DAEMON_TIMEOUT", "may or may not have been sent"],
  [409, "APPROVAL_PENDING", "answer"],
])("a message that is refused with %i %s comes back into the box, with the reason", async (status, code, sentence) => {
  read();
  service({ "POST chat": () => refusal(status, "It is gone", code) });
  const person = show(composer());
  await person.type(box(), "Are you there?{Enter}");
  expect((await screen.findByRole("alert")).textContent).toContain(sentence);
  expect(box().value).toBe("Are you there?");
});

test("a queued message is taken back; one that was sent meanwhile says so", async () => {
  read(["another idea"]);
  const server = service({ "DELETE msg_0": () => refusal(409, "It was sent", "ALREADY_SENT") });
  const person = show(composer({ status: "generating" }));
  const queued = screen.getByRole("list", { name: "Queued" });
  expect(queued.textContent).toContain("another idea");
  await person.click(within(queued).getByRole("button", { name: "Take back" }));
  expect(server.taken.map(({ name }) => name)).toEqual(["DELETE msg_0"]);
  expect((await screen.findByRole("alert")).textContent).toContain("sent");
});

test("a message is shown as being sent until the queue has it, and not again when it leaves that", async () => {
  read();
  let accept: (response: object) => void = () => undefined;
  service({ "POST chat": () => new Promise<object>((resolve) => (accept = resolve)) });
  const person = show(composer({ status: "generating" }));
  await person.type(box(), "another idea{Enter}");
  expect(screen.getByText("Sending")).toBeDefined();
  await act(async () => {
    queryClient.setQueryData(keys.queue(TARGET), [{ messageId: "msg_own", text: "another idea", createdAt: 1 }]);
    accept({ messageId: "msg_own", queued: true });
  });
  await vi.waitFor(() => expect(screen.queryByText("Sending")).toBeNull());
  expect(screen.getAllByText("another idea")).toHaveLength(1);
  act(() => void queryClient.setQueryData(keys.queue(TARGET), []));
  await vi.waitFor(() => expect(screen.queryByText("another idea")).toBeNull());
  expect(screen.queryByText("Sending")).toBeNull();
});

/** Paste a picture, as a browser does. */
function paste(): void {
  const file = new File([new Uint8Array([1, 2, 3])], "picture.png", { type: "image/png" });
  fireEvent.paste(box(), { clipboardData: { types: ["Files"], files: [file] } });
}

test("pasted pictures are shown, can be removed, and go with a text for agents that take none", async () => {
  read();
  const server = service({ "POST chat": () => ({ messageId: "msg_own" }) });
  const person = show(composer());
  await person.type(box(), "Look at this");
  paste();
  await vi.waitFor(() => expect(screen.getAllByRole("img")).toHaveLength(1));
  paste();
  await vi.waitFor(() => expect(screen.getAllByRole("img")).toHaveLength(2));
  await person.click(button("Remove picture 1"));
  await person.type(box(), "{Enter}");
  const [message] = sent(server) as [{ input: { parts: object[]; textFallback: string } }];
  expect(message.input.parts).toEqual([
    { type: "text", text: "Look at this" },
    { type: "image", mimeType: "image/png", data: "AQID" },
  ]);
  expect(message.input.textFallback).toMatch(/^Look at this\n\n\[1 picture/);
  expect(screen.queryByRole("img")).toBeNull();
});

test("an agent in a terminal takes no pictures, and a draft stays", async () => {
  read();
  const person = show(composer({ pictures: false }));
  await person.type(box(), "a draft");
  paste();
  expect((await screen.findByRole("alert")).textContent).toContain("takes no pictures");
  expect(box().value).toBe("a draft");
});
