import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { Daemon } from "@/api/client";
import { joinedSince } from "@/features/machines/machine-state";
import { machinesQuery } from "@/features/machines/queries";

/** Events announce a machine that connects; the interval is for the time in which they are lost. */
const REFRESH_MS = 3000;

/** Return the machine that has connected since this component was mounted; only one of that host name. */
export function useJoinedMachine(hostname?: string): Daemon | undefined {
  const machines = useQuery({ ...machinesQuery, refetchInterval: REFRESH_MS }).data;
  const [before, setBefore] = useState<ReadonlyMap<string, number | null>>();
  if (machines && !before) setBefore(new Map(machines.map(({ id, connectedAt }) => [id, connectedAt])));
  if (!machines || !before) return undefined;
  return joinedSince(
    before,
    machines.filter((machine) => hostname === undefined || machine.hostname === hostname),
  );
}
