import { QueryClient } from "@tanstack/react-query";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Session } from "@/api/client";
import { applyFrame, REREAD_MS, withSession } from "./apply";

const session = (changes: Partial<Session> = {}) =>
  ({ id: "s", targetId: "m:session:s", status: "idle", pendingAction: null, ...changes }) as Session;
const question = { id: "action_1", message: "?", options: [] };

const frame = (event: string, payload: object) => ({
  id: "1",
  event,
  data: JSON.stringify({ event, daemonId: "m", targetId: "m:session:s", timestamp: 1, payload }),
});

beforeEach(() => void vi.useFakeTimers());
afterEach(() => {
  vi.runAllTimers();
  vi.useRealTimers();
});

test("a session takes its own place, a new one the first, an ended one none", () => {
  const list = [session({ id: "a" }), session()];
  expect(withSession(list, session({ status: "error" }), false).map((one) => one.status)).toEqual(["idle", "error"]);
  expect(withSession(list, session({ id: "new" }), false)[0]?.id).toBe("new");
  expect(withSession(list, session(), true).map((one) => one.id)).toEqual(["a"]);
});

test("an answered question leaves the inbox with the session that no longer has it", () => {
  const client = new QueryClient();
  client.setQueryData(["sessions"], [session({ pendingAction: question })]);
  client.setQueryData(["approvals"], [{ action: question, sessionId: "s" }, { action: { id: "other" }, sessionId: "t" }]);
  applyFrame(client, frame("session:updated", { session: session() }));
  expect(client.getQueryData(["approvals"])).toEqual([{ action: { id: "other" }, sessionId: "t" }]);
  expect(client.getQueryData<Session[]>(["sessions"])?.[0]?.pendingAction).toBeNull();
});

test("a new question is read from the service", () => {
  const client = new QueryClient();
  client.setQueryData(["approvals"], []);
  applyFrame(client, frame("session:updated", { session: session({ pendingAction: question }) }));
  expect(client.getQueryState(["approvals"])?.isInvalidated).toBe(true);
});

test("many events of a session are shown at once, and its status is read once", () => {
  const client = new QueryClient();
  const key = ["status", "m:session:s"];
  client.setQueryData(key, { status: "idle", controls: [] });
  const read = vi.spyOn(client, "invalidateQueries");
  for (const status of ["generating", "waiting_approval", "generating"] as const) {
    applyFrame(client, frame("session:updated", { session: session({ status }) }));
    expect(client.getQueryData(key)).toMatchObject({ status, controls: [] });
  }
  const reads = () => read.mock.calls.filter(([filters]) => filters?.queryKey?.[0] === "status").length;
  expect(reads()).toBe(0);
  vi.advanceTimersByTime(REREAD_MS);
  expect(reads()).toBe(1);
  applyFrame(client, frame("session:updated", { session: session() }));
  vi.advanceTimersByTime(REREAD_MS);
  expect(reads()).toBe(2);
});

test.each([
  frame("session:became_something", { session: { ...session({ status: "napping" as never }), mood: {} } }),
  frame("session:updated", { more: true }),
  frame("planet:landed", { session: null }),
  frame("chat:unknown", { message: { kind: "hologram" } }),
  { id: "1", event: "session:updated", data: JSON.stringify({ event: "session:updated", daemonId: "m", targetId: "t" }) },
  { id: "1", event: "machine:upgraded", data: JSON.stringify({ event: "machine:upgraded", daemonId: "m" }) },
  { id: "1", event: "stream:news", data: "not JSON" },
])("what only a newer service has breaks nothing: %j", (one) => {
  const client = new QueryClient();
  client.setQueryData(["sessions"], [session()]);
  applyFrame(client, one);
  expect(client.getQueryData<Session[]>(["sessions"])).toHaveLength(1);
});
