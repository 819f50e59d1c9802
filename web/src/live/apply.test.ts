import { QueryClient, QueryObserver, type QueryKey } from "@tanstack/react-query";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Session } from "@/api/client";
import { keys } from "@/api/query-keys";
import { applyFrame, REREAD_MS, withSession } from "./apply";
import type { Chat } from "./messages";

const session = (changes: Partial<Session> = {}) =>
  ({ id: "s", targetId: "m:session:s", status: "idle", pendingAction: null, ...changes }) as Session;
const question = { id: "action_1", message: "?", options: [], diff: null };

const frame = (event: string, payload: object) => ({
  id: "1",
  event,
  data: JSON.stringify({ event, daemonId: "m", targetId: "m:session:s", timestamp: 1, payload }),
});

const message = (index: number, content = "") =>
  frame("chat:message", { message: { id: `m${index}`, index, content } });

/** Show a query; return how often it is read, and what answers the oldest of its open requests. */
function show(client: QueryClient, queryKey: QueryKey) {
  const open: ((data: unknown) => void)[] = [];
  const queryFn = vi.fn(() => new Promise<unknown>((answer) => open.push(answer)));
  new QueryObserver(client, { queryKey, queryFn, staleTime: Infinity }).subscribe(() => undefined);
  const answer = async (data: unknown) => {
    open.shift()?.(data);
    await vi.advanceTimersByTimeAsync(0);
  };
  return { reads: () => queryFn.mock.calls.length, answer };
}

beforeEach(() => void vi.useFakeTimers());
afterEach(() => {
  vi.runAllTimers();
  vi.useRealTimers();
});

test("a session takes its own place, a new one the first, an ended one none", () => {
  const list = [session({ id: "a" }), session()];
  expect(withSession(list, session({ status: "error" }), false).map((event) => event.status)).toEqual([
    "idle",
    "error",
  ]);
  expect(withSession(list, session({ id: "new" }), false)[0]?.id).toBe("new");
  expect(withSession(list, session(), true).map((event) => event.id)).toEqual(["a"]);
});

test("an answered question leaves the inbox with the session that no longer has it", () => {
  const client = new QueryClient();
  client.setQueryData(keys.sessions(), [session({ pendingAction: question })]);
  client.setQueryData(keys.questions(), [
    { action: question, sessionId: "s" },
    { action: { id: "other" }, sessionId: "t" },
  ]);
  applyFrame(client, frame("session:updated", { session: session() }));
  expect(client.getQueryData(keys.questions())).toEqual([{ action: { id: "other" }, sessionId: "t" }]);
  expect(client.getQueryData<Session[]>(keys.sessions())?.[0]?.pendingAction).toBeNull();
});

test("a new question is read from the service", () => {
  const client = new QueryClient();
  client.setQueryData(keys.questions(), []);
  applyFrame(client, frame("session:updated", { session: session({ pendingAction: question }) }));
  expect(client.getQueryState(keys.questions())?.isInvalidated).toBe(true);
});

test("many events of a session are shown at once, and its status is read once", async () => {
  const client = new QueryClient();
  const key = keys.status("m:session:s");
  client.setQueryData(key, { status: "idle", controls: [] });
  const { reads, answer } = show(client, key);
  for (const status of ["generating", "waiting_approval", "generating"] as const) {
    applyFrame(client, frame("session:updated", { session: session({ status }) }));
    expect(client.getQueryData(key)).toMatchObject({ status, controls: [] });
  }
  expect(reads()).toBe(0);
  vi.advanceTimersByTime(REREAD_MS);
  expect(reads()).toBe(1);
  await answer({ status: "generating", controls: [] });
  applyFrame(client, frame("session:updated", { session: session() }));
  vi.advanceTimersByTime(REREAD_MS);
  expect(reads()).toBe(2);
});

test("what is out of date stays so when an event changes it", () => {
  const client = new QueryClient();
  client.setQueryData(keys.machine("m"), { connected: false, sessions: [] });
  applyFrame(client, frame("machine:connected", {}));
  applyFrame(client, frame("session:updated", { session: session() }));
  expect(client.getQueryState(keys.machine("m"))).toMatchObject({
    isInvalidated: true,
    data: { sessions: [{ id: "s" }] },
  });
});

test("a chat with a message that an event has only the beginning of is read again when it is shown", () => {
  const client = new QueryClient();
  const key = keys.chat("m:session:s");
  client.setQueryData<Chat>(key, { messages: [], totalMessages: 0 });
  applyFrame(client, message(0, "A long story [outrider: the rest is left out here; the chat has it]"));
  applyFrame(client, message(1));
  expect(client.getQueryState<Chat>(key)).toMatchObject({ isInvalidated: true, data: { totalMessages: 2 } });
});

test("a first read that events overtake ends, and one more follows it", async () => {
  const client = new QueryClient();
  const { reads, answer } = show(client, keys.chat("m:session:s"));
  applyFrame(client, message(1));
  applyFrame(client, message(2));
  expect(reads()).toBe(1);
  await answer({ messages: [{ id: "m0", index: 0 }], totalMessages: 1 });
  expect(client.getQueryData<Chat>(keys.chat("m:session:s"))?.messages).toHaveLength(1);
  expect(reads()).toBe(2);
  await answer({ messages: [0, 1, 2].map((index) => ({ id: `m${index}`, index })), totalMessages: 3 });
  expect(client.getQueryState(keys.chat("m:session:s"))).toMatchObject({
    isInvalidated: false,
    data: { totalMessages: 3 },
  });
  expect(reads()).toBe(2);
});

test.each([
  ["a new question", frame("session:updated", { session: session({ pendingAction: question }) })],
  ["an answered question", frame("session:updated", { session: session() })],
  ["a gap in the stream", { id: undefined, event: "stream:ready", data: '{"resume":"fresh"}' }],
])("the inbox is read once more after %s during its first read", async (_, event) => {
  const client = new QueryClient();
  const { reads, answer } = show(client, keys.questions());
  applyFrame(client, event);
  vi.runAllTimers();
  expect(reads()).toBe(1);
  await answer([]);
  expect(reads()).toBe(2);
});

test.each([
  frame("session:became_something", { session: { ...session({ status: "napping" as never }), mood: {} } }),
  frame("session:updated", { more: true }),
  frame("planet:landed", { session: null }),
  frame("chat:unknown", { message: { kind: "hologram" } }),
  {
    id: "1",
    event: "session:updated",
    data: JSON.stringify({ event: "session:updated", daemonId: "m", targetId: "t" }),
  },
  { id: "1", event: "machine:upgraded", data: JSON.stringify({ event: "machine:upgraded", daemonId: "m" }) },
  { id: "1", event: "stream:news", data: "not JSON" },
])("what only a newer service has breaks nothing: %j", (event) => {
  const client = new QueryClient();
  client.setQueryData(keys.sessions(), [session()]);
  applyFrame(client, event);
  expect(client.getQueryData<Session[]>(keys.sessions())).toHaveLength(1);
});
