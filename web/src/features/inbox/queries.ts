import { queryOptions } from "@tanstack/react-query";
import { api } from "@/api/client";
import { keys } from "@/api/query-keys";

/** The open questions of the account. */
export const questionsQuery = queryOptions({
  queryKey: keys.questions(),
  queryFn: async ({ signal }) => (await api.get("/api/v1/approvals", { signal })).approvals,
});
