import { queryOptions } from "@tanstack/react-query";
import { api } from "@/api/client";
import { FIRST_MESSAGES, MOST_SESSIONS } from "@/api/prefetch";
import { queryClient } from "@/api/query-client";
import { keys } from "@/api/query-keys";
import { keepEarlier } from "@/live/messages";

/** How many messages of a chat are read when the user scrolls up. */
const EARLIER_MESSAGES = 500;

/** The running sessions of the account, those of offline machines in their last state. */
export const sessionsQuery = queryOptions({
  queryKey: keys.sessions(),
  queryFn: async ({ signal }) =>
    (await api.get("/api/v1/sessions", { query: { state: "running", limit: MOST_SESSIONS }, signal })).sessions,
});

export const statusQuery = (ideId: string) =>
  queryOptions({
    queryKey: keys.status(ideId),
    queryFn: ({ signal }) => api.get("/api/v1/shortcuts/{ideId}/status", { path: { ideId }, signal }),
  });

async function readChat(ideId: string, signal: AbortSignal) {
  const query = { limit: FIRST_MESSAGES };
  return api.get("/api/v1/shortcuts/{ideId}/chat", { path: { ideId }, query, signal });
}

export const chatQuery = (ideId: string) =>
  queryOptions({
    queryKey: keys.chat(ideId),
    queryFn: async ({ signal, client }) => {
      const end = await readChat(ideId, signal);
      return keepEarlier(client.getQueryData<typeof end>(keys.chat(ideId)), end);
    },
  });

/** Read the messages before the first one that has been read. */
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

export const queueQuery = (ideId: string) =>
  queryOptions({
    queryKey: keys.queue(ideId),
    queryFn: async ({ signal }) =>
      (await api.get("/api/v1/shortcuts/{ideId}/queue", { path: { ideId }, signal })).messages,
  });

/** An ended session, as the history has it: why it ended, and whether it can be continued. */
export const endedQuery = (sessionId: string) =>
  queryOptions({
    queryKey: keys.endedSession(sessionId),
    gcTime: 0,
    queryFn: async ({ signal }) => {
      const query = { state: "ended" as const, q: sessionId, limit: 1 };
      const { sessions } = await api.get("/api/v1/sessions", { query, signal });
      return sessions.find((session) => session.id === sessionId) ?? null;
    },
  });
