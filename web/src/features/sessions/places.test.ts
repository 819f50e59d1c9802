import { expect, test } from "vitest";
import type { Daemon, Session } from "@/api/client";
import { placesOf, recentDirectories, repositoryPath, workplace } from "./places";

const session = (id: string, machine: string, status: Session["status"], lastActivityAt = 0) =>
  ({ id, targetId: `${machine}:session:${id}`, status, lastActivityAt }) as Session;
const machine = (id: string, connectedAt: number | null = 1, connected = true) =>
  ({ id, connectedAt, connected }) as Daemon;

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
  const beside = {
    workspace: workspace("/srv/billing.worktrees/fix-rounding"),
    worktree: worktree("/srv/billing.worktrees/fix-rounding"),
  };
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
  const at = (path: string, lastActivityAt: number, on = "m") => ({
    ...session("s", on, "idle", lastActivityAt),
    workspace: workspace(path),
  });
  const sessions = [
    at("/a", 1),
    at("/b", 2),
    at("/a", 3),
    at("/c", 4, "other"),
    { ...at("/b.worktrees/x", 5), worktree: worktree("/b.worktrees/x") },
  ];
  expect(recentDirectories(sessions, "m")).toEqual(["/b", "/a"]);
});

test("a session of a machine that is not in the account any more is left out", () => {
  expect(placesOf([session("s", "revoked", "idle")], [machine("m")])).toEqual([]);
});
