import { queryOptions } from "@tanstack/react-query";
import { api } from "@/api/client";
import { keys } from "@/api/query-keys";

export const machinesQuery = queryOptions({
  queryKey: keys.machines(),
  queryFn: async ({ signal }) => (await api.get("/api/v1/daemons", { query: { state: "all" }, signal })).daemons,
});

export const machineQuery = (daemonId: string) =>
  queryOptions({
    queryKey: keys.machine(daemonId),
    queryFn: ({ signal }) => api.get("/api/v1/daemons/{daemonId}/status", { path: { daemonId }, signal }),
  });
