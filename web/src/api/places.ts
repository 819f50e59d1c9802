/** Where sessions are, and in which order they are shown. */
import type { Daemon, Session } from "./client";

/** A session, and the machine that it is on. */
export interface Place {
  session: Session;
  machine: Daemon;
}

const ORDER = { waiting_approval: 0, generating: 1, error: 2, idle: 3 };

/** Those that wait for approval first, then by status, the most recently active first. */
export function bySessionUrgency(one: Place, other: Place): number {
  return (
    (ORDER[one.session.status] ?? 4) - (ORDER[other.session.status] ?? 4) ||
    other.session.lastActivityAt - one.session.lastActivityAt
  );
}

/** Return each session with its machine, the most urgent first. Those of a revoked machine are left out. */
export function placesOf(sessions: readonly Session[], machines: readonly Daemon[]): Place[] {
  const byId = new Map(machines.map((machine) => [machine.id, machine]));
  return sessions
    .flatMap((session): Place[] => {
      const machine = byId.get(machineOf(session.targetId));
      return machine ? [{ session, machine }] : [];
    })
    .sort(bySessionUrgency);
}

/** Return the machine's id of a target id. */
export const machineOf = (targetId: string) => targetId.slice(0, Math.max(0, targetId.indexOf(":")));

/**
 * Return the machine that has connected since `before`: a new one, or one that has connected again.
 */
export function joinedSince(before: ReadonlyMap<string, number | null>, machines: readonly Daemon[]): Daemon | undefined {
  return machines.find(
    (machine) => machine.connected !== false && machine.connectedAt !== null && before.get(machine.id) !== machine.connectedAt,
  );
}

/** Return the session whose page is at a path, below the base path. */
export function sessionAt(path: string, basePath: string): string | undefined {
  const [, encoded] = /^sessions\/([^/]+)\/?$/.exec(path.slice(basePath.length)) ?? [];
  try {
    return encoded && decodeURIComponent(encoded);
  } catch {
    return undefined;
  }
}
