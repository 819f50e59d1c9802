import { queryOptions, QueryClient } from "@tanstack/react-query";
import { keepEarlier } from "@/live/messages";
import { api, ApiError, type Account, type Chat } from "./client";
import { FIRST_MESSAGES, MOST_SESSIONS } from "./first";
import { LONGEST_WAIT_S } from "./limited";

/** How many messages of a chat are read when the user scrolls up. */
const EARLIER_MESSAGES = 500;

export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      // Events keep what is shown up to date; after a gap in them, everything is read again.
      staleTime: Infinity,
      refetchOnWindowFocus: false,
      // A service on this machine or network is there also when the browser counts as offline.
      networkMode: "always",
      refetchOnReconnect: true,
      retry: (failures, error) => {
        if (error instanceof ApiError) {
          if (error.status === 429) return failures < 5 && (error.retryAfter ?? 0) <= LONGEST_WAIT_S;
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

/** Return the id of the user who is logged in. What the browser keeps or shares is bound to it. */
export const userOf = (account: Account): string => account.user?.id ?? account.id;

export const machinesQuery = queryOptions({
  queryKey: ["machines"],
  queryFn: async ({ signal }) => (await api.get("/api/v1/daemons", { query: { state: "all" }, signal })).daemons,
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
export const endedQuery = (sessionId: string) =>
  queryOptions({
    queryKey: ["ended", sessionId],
    gcTime: 0,
    queryFn: async ({ signal }) => {
      const query = { state: "ended" as const, q: sessionId, limit: 1 };
      const { sessions } = await api.get("/api/v1/sessions", { query, signal });
      return sessions.find((one) => one.id === sessionId) ?? null;
    },
  });

export const queueQuery = (ideId: string) =>
  queryOptions({
    queryKey: ["queue", ideId],
    queryFn: async ({ signal }) =>
      (await api.get("/api/v1/shortcuts/{ideId}/queue", { path: { ideId }, signal })).messages,
  });

export const webhooksQuery = queryOptions({
  queryKey: ["webhooks"],
  queryFn: async ({ signal }) => (await api.get("/api/v1/webhooks", { signal })).webhooks,
});

/** A delivery with its request, which never changes. */
export const deliveryQuery = (webhookId: string, deliveryId: string) =>
  queryOptions({
    queryKey: ["delivery", deliveryId],
    queryFn: ({ signal }) =>
      api.get("/api/v1/webhooks/{webhookId}/deliveries/{deliveryId}", { path: { webhookId, deliveryId }, signal }),
  });

/** The running sessions of the account, those of offline machines in their last state. */
export const sessionsQuery = queryOptions({
  queryKey: ["sessions"],
  queryFn: async ({ signal }) =>
    (await api.get("/api/v1/sessions", { query: { state: "running", limit: MOST_SESSIONS }, signal })).sessions,
});

/** The open questions of the account. */
export const approvalsQuery = queryOptions({
  queryKey: ["approvals"],
  queryFn: async ({ signal }) => (await api.get("/api/v1/approvals", { signal })).approvals,
});

/** Read what every page needs. What has been read already is not read again. */
export function readShell(): void {
  void queryClient.prefetchQuery(accountQuery);
  void queryClient.prefetchQuery(sessionsQuery);
  void queryClient.prefetchQuery(machinesQuery);
  void queryClient.prefetchQuery(approvalsQuery);
}
