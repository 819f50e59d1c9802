import { expect, test } from "vitest";
import type { Delivery, Webhook } from "@/api/client";
import { eventsOf, pretty, resultOf, webhookState } from "./deliveries";

const webhook = (changes: Partial<Webhook>) =>
  ({ active: true, disabledReason: null, events: ["*"], ...changes }) as Webhook;
const delivery = (changes: Partial<Delivery>) =>
  ({ status: "succeeded", statusCode: 204, error: null, attempt: 1, durationMs: 12, ...changes }) as Delivery;

test("a webhook is active, paused by its user, or disabled by the service", () => {
  expect(webhookState(webhook({}))).toBe("active");
  expect(webhookState(webhook({ active: false }))).toBe("paused");
  expect(webhookState(webhook({ active: false, disabledReason: "410" }))).toBe("disabled");
});

test("many events are only counted", () => {
  expect(eventsOf(webhook({ events: ["*"] }))).toBe("All events");
  expect(eventsOf(webhook({ events: ["agent:error", "chat:message"] }))).toBe("agent:error, chat:message");
  expect(eventsOf(webhook({ events: ["agent:error", "chat:message", "queue:changed", "session:ended"] }))).toBe(
    "4 events",
  );
});

test("a delivery shows the response or why there is none", () => {
  expect(resultOf(delivery({}))).toBe("204 · 12 ms");
  expect(resultOf(delivery({ statusCode: 500, attempt: 3 }))).toBe("500 · 12 ms · 3 attempts");
  expect(resultOf(delivery({ statusCode: null, error: "The receiver could not be reached", attempt: 2 }))).toBe(
    "The receiver could not be reached · 2 attempts",
  );
  expect(resultOf(delivery({ statusCode: null, durationMs: null, attempt: 0, status: "pending" }))).toBe(
    "not sent yet",
  );
});

test("a body that is no JSON is shown as it is", () => {
  expect(pretty('{"a":[1]}')).toBe('{\n  "a": [\n    1\n  ]\n}');
  expect(pretty("<b>no</b>")).toBe("<b>no</b>");
});
