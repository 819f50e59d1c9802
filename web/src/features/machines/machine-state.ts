import type { Daemon } from "@/api/client";

/** Return the state of a machine as the dashboard shows it. */
export function machineState(machine: {
  connected?: boolean;
  reconnecting?: boolean;
}): "online" | "reconnecting" | "offline" {
  if (machine.connected === false) return "offline";
  return machine.reconnecting ? "reconnecting" : "online";
}

/** Return the machine that has connected since `before`: a new one, or one that has connected again. */
export function joinedSince(
  before: ReadonlyMap<string, number | null>,
  machines: readonly Daemon[],
): Daemon | undefined {
  return machines.find(
    (machine) =>
      machine.connected !== false && machine.connectedAt !== null && before.get(machine.id) !== machine.connectedAt,
  );
}
