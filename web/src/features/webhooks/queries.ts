import { queryOptions } from "@tanstack/react-query";
import { api } from "@/api/client";
import { keys } from "@/api/query-keys";

export const webhooksQuery = queryOptions({
  queryKey: keys.webhooks(),
  queryFn: async ({ signal }) => (await api.get("/api/v1/webhooks", { signal })).webhooks,
});

/** A delivery with its request, which never changes. */
export const deliveryQuery = (webhookId: string, deliveryId: string) =>
  queryOptions({
    queryKey: keys.delivery(webhookId, deliveryId),
    queryFn: ({ signal }) =>
      api.get("/api/v1/webhooks/{webhookId}/deliveries/{deliveryId}", { path: { webhookId, deliveryId }, signal }),
  });
