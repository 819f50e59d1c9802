import { QueryClient } from "@tanstack/react-query";
import { expect, test } from "vitest";
import type { Session } from "@/api/client";
import { applyFrame, withSession } from "./apply";

const session = (changes: Partial<Session> = {}) =>
  ({ id: "s", targetId: "m:session:s", status: "idle", pendingAction: null, ...changes }) as Session;
const question = { id: "action_1", message: "?", options: [] };

const frame = (event: string, payload: object) => ({
  id: "1",
  event,
  data: JSON.stringify({ event, daemonId: "m", targetId: "m:session:s", timestamp: 1, payload }),
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
