/** Loads what a session's page needs all at once, instead of one after the other. */
import { queryClient } from "@/api/query-client";
import { machineOf } from "@/api/target-id";
import { machineQuery } from "@/features/machines/queries";
import { chatQuery, queueQuery, sessionsQuery, statusQuery } from "./queries";

/** Load the code of the page. */
export function loadCode(): void {
  // A failure is shown when the page is opened, which tries again.
  void import("./session-page").catch(() => undefined);
}

/** Read what the page shows first. What has been read already is not read again. */
export function readSession(targetId: string): void {
  void queryClient.prefetchQuery(chatQuery(targetId));
  void queryClient.prefetchQuery(machineQuery(machineOf(targetId)));
  // An ended session has neither; until the list is there, nothing says whether it has ended.
  const sessions = queryClient.getQueryData(sessionsQuery.queryKey);
  if (!sessions?.some((session) => session.targetId === targetId)) return;
  void queryClient.prefetchQuery(statusQuery(targetId));
  void queryClient.prefetchQuery(queueQuery(targetId));
}
