import { useQuery } from "@tanstack/react-query";
import { useRef } from "react";
import type { Daemon } from "@/api/client";
import { joinedSince } from "@/api/places";
import { machinesQuery } from "@/api/queries";

/** Events announce a machine that connects; the interval is for the time in which they are lost. */
const REFRESH_MS = 3000;

/** Return the machine that has connected since this component was mounted; only one of that host name. */
export function useJoined(hostname?: string): Daemon | undefined {
  const machines = useQuery({ ...machinesQuery, refetchInterval: REFRESH_MS }).data;
  const before = useRef<Map<string, number | null>>(undefined);
  if (machines && !before.current) before.current = new Map(machines.map((one) => [one.id, one.connectedAt]));
  const candidates = machines?.filter((one) => hostname === undefined || one.hostname === hostname);
  return candidates && before.current ? joinedSince(before.current, candidates) : undefined;
}
