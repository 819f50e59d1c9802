import { queryOptions, QueryClient, useQueries, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { keepEarlier } from "@/live/messages";
import { api, ApiError, type Chat, type DaemonStatus, type Session } from "./client";

/** How many messages of a chat are read at first, and how many when somebody scrolls up. */
const FIRST_MESSAGES = 200;
const EARLIER_MESSAGES = 500;

export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      // Events keep what is shown up to date; after a gap in them, everything is read again.
      staleTime: Infinity,
      refetchOnWindowFocus: false,
      retry: (failures, error) => {
        if (error instanceof ApiError) {
          if (error.status === 429) return failures < 5;
          return (error.status === 503 || error.status === 504) && failures < 2;
        }
        return failures < 2;
      },
      retryDelay: (failures, error) =>
        error instanceof ApiError && error.retryAfter ? error.retryAfter * 1000 : 500 * 2 ** failures,
    },
  },
});

export const accountQuery = queryOptions({
  queryKey: ["account"],
  queryFn: ({ signal }) => api.get("/api/v1/account", { signal }),
});

export const machinesQuery = queryOptions({
  queryKey: ["machines"],
  queryFn: async ({ signal }) => {
    // Services that do not know `state` ignore it, and list the connected machines.
    const query = { state: "all" } as never;
    return (await api.get("/api/v1/daemons", { query, signal })).daemons;
  },
});

export const machineQuery = (daemonId: string) =>
  queryOptions({
    queryKey: ["machine", daemonId],
    queryFn: ({ signal }) => api.get("/api/v1/daemons/{daemonId}/status", { path: { daemonId }, signal }),
  });

export const statusQuery = (ideId: string) =>
  queryOptions({
    queryKey: ["status", ideId],
    queryFn: ({ signal }) => api.get("/api/v1/shortcuts/{ideId}/status", { path: { ideId }, signal }),
  });

export const chatQuery = (ideId: string) =>
  queryOptions({
    queryKey: ["chat", ideId],
    queryFn: async ({ signal }) => {
      const query = { limit: FIRST_MESSAGES };
      const end = await api.get("/api/v1/shortcuts/{ideId}/chat", { path: { ideId }, query, signal });
      return keepEarlier(queryClient.getQueryData<Chat>(["chat", ideId]), end);
    },
  });

/** Read the messages before the first one that is known. */
export async function readEarlier(ideId: string): Promise<void> {
  const { queryKey } = chatQuery(ideId);
  const first = queryClient.getQueryData(queryKey)?.messages[0];
  if (!first || first.index === 0) return;
  const query = { before: first.id, limit: EARLIER_MESSAGES };
  const page = await api.get("/api/v1/shortcuts/{ideId}/chat", { path: { ideId }, query });
  queryClient.setQueryData(queryKey, (chat) =>
    chat && chat.messages[0]?.id === first.id ? { ...chat, messages: [...page.messages, ...chat.messages] } : chat,
  );
}

/** An ended session, as the history has it: why it ended, and whether it can be continued. */
export const endedQuery = (daemonId: string, sessionId: string) =>
  queryOptions({
    queryKey: ["ended", sessionId],
    gcTime: 0,
    queryFn: async ({ signal }) => {
      const query = { state: "ended" as const, limit: 1000 };
      const { sessions } = await api.get("/api/v1/daemons/{daemonId}/sessions", { path: { daemonId }, query, signal });
      return sessions.find((one) => one.id === sessionId) ?? null;
    },
  });

export const queueQuery = (ideId: string) =>
  queryOptions({
    queryKey: ["queue", ideId],
    queryFn: async ({ signal }) =>
      (await api.get("/api/v1/shortcuts/{ideId}/queue", { path: { ideId }, signal })).messages,
  });

/** A session, and the machine that it is on. */
export interface Place {
  session: Session;
  machine: DaemonStatus;
}

const ORDER = { waiting_approval: 0, generating: 1, error: 2, idle: 3 };

/** Those that wait for approval first, then by status, the most recently active first. */
export function bySessionUrgency(one: Place, other: Place): number {
  return (
    (ORDER[one.session.status] ?? 4) - (ORDER[other.session.status] ?? 4) ||
    other.session.lastActivityAt - one.session.lastActivityAt
  );
}

/** Return the running sessions of all machines, the most urgent first. */
export function useSessions() {
  const machines = useQuery(machinesQuery);
  const ids = machines.data?.map((machine) => machine.id) ?? [];
  const states = useQueries({
    queries: ids.map((id) => machineQuery(id)),
    combine: (results) => ({
      places: results.flatMap(({ data }) =>
        (data?.sessions ?? []).map((session): Place => ({ session, machine: data as DaemonStatus })),
      ),
      isPending: results.some((result) => result.isPending),
      failed: results.flatMap((result, i) => (result.isError ? [ids[i] as string] : [])),
    }),
  });
  const places = useMemo(() => [...states.places].sort(bySessionUrgency), [states.places]);
  const names = new Map(machines.data?.map((machine) => [machine.id, machine.nickname]));
  return {
    places,
    machines: machines.data ?? [],
    isPending: machines.isPending || states.isPending,
    error: machines.error,
    failed: states.failed.map((id) => names.get(id) ?? id),
  };
}

/** Return the machine's id of a target id. */
export const machineOf = (targetId: string) => targetId.slice(0, Math.max(0, targetId.indexOf(":")));
