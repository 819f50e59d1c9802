import { queryOptions } from "@tanstack/react-query";
import { api, type Account } from "@/api/client";
import { keys } from "@/api/query-keys";

export const accountQuery = queryOptions({
  queryKey: keys.account(),
  queryFn: ({ signal }) => api.get("/api/v1/account", { signal }),
});

/** Return the id of the user who is logged in. What the browser keeps or shares is bound to it. */
export const userOf = (account: Account): string => account.user?.id ?? account.id;
