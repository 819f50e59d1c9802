import { useQuery } from "@tanstack/react-query";
import { createContext, useContext, useMemo, type ReactNode } from "react";
import type { Approval, Daemon } from "@/api/client";
import { questionsQuery } from "@/features/inbox/queries";
import { machinesQuery } from "@/features/machines/queries";
import { placesOf, type Place } from "./places";
import { sessionsQuery } from "./queries";

interface Fleet {
  /** The running sessions of all machines, the most urgent first. */
  places: Place[];
  machines: Daemon[];
  approvals: Approval[];
  isPending: boolean;
  error: Error | null;
}

const NOTHING: Fleet = { places: [], machines: [], approvals: [], isPending: true, error: null };
const FleetContext = createContext<Fleet>(NOTHING);

/** Reads machines, sessions and open questions once for all that shows them. */
export function FleetProvider({ children }: { children: ReactNode }) {
  const machines = useQuery(machinesQuery);
  const sessions = useQuery(sessionsQuery);
  const approvals = useQuery(questionsQuery);
  const places = useMemo(() => placesOf(sessions.data ?? [], machines.data ?? []), [sessions.data, machines.data]);
  const fleet = useMemo(
    (): Fleet => ({
      places,
      machines: machines.data ?? [],
      approvals: approvals.data ?? [],
      isPending: machines.isPending || sessions.isPending || approvals.isPending,
      error: machines.error ?? sessions.error ?? approvals.error,
    }),
    [
      places,
      machines.data,
      approvals.data,
      machines.isPending,
      sessions.isPending,
      approvals.isPending,
      machines.error,
      sessions.error,
      approvals.error,
    ],
  );
  return <FleetContext value={fleet}>{children}</FleetContext>;
}

export const useFleet = (): Fleet => useContext(FleetContext);
