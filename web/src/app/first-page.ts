/** Requests the data and code of the first page at once: the router and the page would do it one after the other. */
import { BASE_PATH } from "@/api/client";
import { queryClient } from "@/api/query-client";
import { sessionAt } from "@/api/target-id";
import { accountQuery } from "@/features/account/queries";
import { questionsQuery } from "@/features/inbox/queries";
import { machinesQuery } from "@/features/machines/queries";
import { loadCode, readSession } from "@/features/sessions/load";
import { sessionsQuery } from "@/features/sessions/queries";

/** Read what every page needs. What has been read already is not read again. */
export function readShell(): void {
  void queryClient.prefetchQuery(accountQuery);
  void queryClient.prefetchQuery(sessionsQuery);
  void queryClient.prefetchQuery(machinesQuery);
  void queryClient.prefetchQuery(questionsQuery);
}

export function requestFirstPage(): void {
  const targetId = sessionAt(location.pathname, BASE_PATH);
  if (targetId !== undefined) {
    // As the router writes it: otherwise it would load the page a second time, to correct the address.
    const path = `${BASE_PATH}sessions/${encodeURIComponent(targetId)}`;
    history.replaceState(history.state, "", path + location.search + location.hash);
    loadCode();
    readSession(targetId);
  }
  if (location.pathname !== `${BASE_PATH}login`) readShell();
}
