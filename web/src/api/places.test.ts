import { expect, test } from "vitest";
import type { Daemon, Session } from "./client";
import { joinedSince, machineOf, placesOf, sessionAt } from "./places";

const session = (id: string, machine: string, status: Session["status"], lastActivityAt = 0) =>
  ({ id, targetId: `${machine}:session:${id}`, status, lastActivityAt }) as Session;
const machine = (id: string, connectedAt: number | null = 1, connected = true) => ({ id, connectedAt, connected }) as Daemon;

test("what waits for an approval comes first, then the most recently active", () => {
  const sessions = [
    session("idle", "m", "idle", 9),
    session("new", "m", "generating", 5),
    session("waits", "m", "waiting_approval", 1),
    session("old", "m", "generating", 2),
    session("error", "m", "error", 8),
  ];
  const order = placesOf(sessions, [machine("m")]).map((place) => place.session.id);
  expect(order).toEqual(["waits", "new", "old", "error", "idle"]);
});

test("a session of a machine that is not in the account any more is left out", () => {
  expect(placesOf([session("s", "revoked", "idle")], [machine("m")])).toEqual([]);
});

test("a target id begins with its machine", () => {
  expect(machineOf("machine_1:session:s:x")).toBe("machine_1");
  expect(machineOf("nonsense")).toBe("");
});

test("a machine has joined when it is new, or has connected again", () => {
  const before = new Map<string, number | null>([["old", 1], ["never", null]]);
  expect(joinedSince(before, [machine("old", 1)])).toBeUndefined();
  expect(joinedSince(before, [machine("never", null, false)])).toBeUndefined();
  expect(joinedSince(before, [machine("new", 2, false)])).toBeUndefined();
  expect(joinedSince(before, [machine("old", 1), machine("new", 2)])?.id).toBe("new");
  expect(joinedSince(before, [machine("old", 3)])?.id).toBe("old");
});

test.each([
  ["/sessions/m%3Asession%3As", "/", "m:session:s"],
  ["/outrider/sessions/m:session:s/", "/outrider/", "m:session:s"],
  ["/sessions/", "/", undefined],
  ["/sessions/a/b", "/", undefined],
  ["/sessions/%", "/", undefined],
  ["/", "/", undefined],
])("the page at %s below %s is that of %s", (path, base, session) => expect(sessionAt(path, base)).toBe(session));
