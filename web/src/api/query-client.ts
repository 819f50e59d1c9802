import { notifyManager, QueryClient } from "@tanstack/react-query";
import { ApiError } from "./client";
import { LONGEST_WAIT_S } from "./rate-limit-wait";

/** Whether a read that has failed is repeated; an action never is, unless it was certainly not done. */
function retry(failures: number, error: Error): boolean {
  if (!(error instanceof ApiError)) return failures < 2;
  if (error.status === 429) return failures < 5 && (error.retryAfter ?? 0) <= LONGEST_WAIT_S;
  return (error.status === 503 || error.status === 504) && failures < 2;
}

// An action is busy from the event that began it: after a timer, as is the default, an Escape that
// follows at once would still close the dialog that is to show the result.
notifyManager.setScheduler(queueMicrotask);

export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      // Events keep what is shown up to date; after a gap in them, everything is read again.
      staleTime: Infinity,
      refetchOnWindowFocus: false,
      // A service on this machine or network is there also when the browser counts as offline.
      networkMode: "always",
      refetchOnReconnect: true,
      retry,
      retryDelay: (failures, error) =>
        error instanceof ApiError && error.retryAfter ? error.retryAfter * 1000 : 500 * 2 ** failures,
    },
    mutations: { networkMode: "always" },
  },
});
