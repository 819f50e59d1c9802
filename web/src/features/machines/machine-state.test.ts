import { expect, test } from "vitest";
import type { Daemon } from "@/api/client";
import { joinedSince } from "./machine-state";

const machine = (id: string, connectedAt: number | null = 1, connected = true) =>
  ({ id, connectedAt, connected }) as Daemon;

test("a machine has joined when it is new, or has connected again", () => {
  const before = new Map<string, number | null>([
    ["old", 1],
    ["never", null],
  ]);
  expect(joinedSince(before, [machine("old", 1)])).toBeUndefined();
  expect(joinedSince(before, [machine("never", null, false)])).toBeUndefined();
  expect(joinedSince(before, [machine("new", 2, false)])).toBeUndefined();
  expect(joinedSince(before, [machine("old", 1), machine("new", 2)])?.id).toBe("new");
  expect(joinedSince(before, [machine("old", 3)])?.id).toBe("old");
});
