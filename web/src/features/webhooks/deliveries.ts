/** What webhooks and their deliveries are called on the pages. */
import type { Delivery, Webhook } from "@/api/client";
import { t } from "@/text";

/** Return whether a webhook is sent events, was paused by its user, or was disabled by the service. */
export const webhookState = (webhook: Webhook) =>
  webhook.active ? "active" : webhook.disabledReason === null ? "paused" : "disabled";

/** Return the events of a webhook in a few words. */
export function eventsOf(webhook: Webhook): string {
  const names: string[] = webhook.events;
  if (names.includes("*")) return t("webhooks.all");
  return names.length <= 3 ? names.join(", ") : t("webhooks.events", names.length);
}

/** Return what came of the newest attempt, in a few words. */
export function resultOf(delivery: Delivery): string {
  const took = delivery.durationMs === null ? [] : [`${delivery.durationMs} ms`];
  const tries = delivery.attempt > 1 ? [t("webhooks.attempts", delivery.attempt)] : [];
  if (delivery.statusCode !== null) return [String(delivery.statusCode), ...took, ...tries].join(" · ");
  return [delivery.error ?? t("webhooks.waiting"), ...tries].join(" · ");
}

/** Return JSON with indentation; anything else as it is. */
export function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
