import { expect, test } from "vitest";
import type { Daemon, Session } from "./client";
import { joinedSince, machineOf, placesOf, recentDirectories, repositoryPath, sessionAt, workplace } from "./places";

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

test("what waits on an offline machine comes last: nobody can answer it", () => {
  const sessions = [session("gone", "off", "waiting_approval", 9), session("idle", "m", "idle", 1)];
  const order = placesOf(sessions, [machine("m"), machine("off", 1, false)]).map((place) => place.session.id);
  expect(order).toEqual(["idle", "gone"]);
});

const workspace = (path: string) => ({ path, name: path.slice(path.lastIndexOf("/") + 1) });
const worktree = (path: string) => ({ path, branch: "fix/rounding", removed: false, created: true });

test("a session in a worktree is at its repository and branch, any other at its directory", () => {
  const beside = { workspace: workspace("/srv/billing.worktrees/fix-rounding"), worktree: worktree("/srv/billing.worktrees/fix-rounding") };
  expect(workplace(beside)).toEqual({ name: "billing", branch: "fix/rounding" });
  expect(repositoryPath(beside)).toBe("/srv/billing");
  const elsewhere = { workspace: workspace("/trees/fix-rounding/src"), worktree: worktree("/trees/fix-rounding") };
  expect(workplace(elsewhere)).toEqual({ name: "src", branch: "fix/rounding" });
  expect(repositoryPath(elsewhere)).toBeUndefined();
  const plain = { workspace: workspace("/srv/billing"), worktree: null };
  expect(workplace(plain)).toEqual({ name: "billing", branch: undefined });
  expect(repositoryPath(plain)).toBe("/srv/billing");
});

test("recent directories are those of the machine, each once, the last used first", () => {
  const at = (path: string, lastActivityAt: number, on = "m") => ({ ...session("s", on, "idle", lastActivityAt), workspace: workspace(path) });
  const sessions = [at("/a", 1), at("/b", 2), at("/a", 3), at("/c", 4, "other"), { ...at("/b.worktrees/x", 5), worktree: worktree("/b.worktrees/x") }];
  expect(recentDirectories(sessions, "m")).toEqual(["/b", "/a"]);
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
