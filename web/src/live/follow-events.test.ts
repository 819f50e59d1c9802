import { type ClientOptions } from "outrider-client";
import { followEvents, type FollowOptions } from "outrider-client/events";
import { afterEach, beforeEach, expect, test, vi } from "vitest";

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

const READY = 'event: stream:ready\ndata: {"resume":"gap","cursor":"1"}\n\n';
const EVENT = 'id: 7\nevent: agent:error\ndata: {"event":"agent:error"}\n\n';
const HEADERS = { "Content-Type": "text/event-stream" };

/** Follow the events of a service that always gives this response; count its requests. */
function follow(response: () => Response, options: Partial<ClientOptions> = {}, given: FollowOptions = {}) {
  const send = vi.fn(async () => response());
  const events = followEvents({ baseUrl: "http://service.example", fetch: send, ...options }, given);
  return { send, events };
}

test("a quota that lasts for weeks is not asked about all the time", async () => {
  const stop = new AbortController();
  const refused = () => new Response("{}", { status: 429, headers: { "Retry-After": "2600000" } });
  const { send, events } = follow(refused, {}, { signal: stop.signal });
  const next = events.next();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(send).toHaveBeenCalledTimes(1);
  stop.abort();
  expect((await next).done).toBe(true);
});

test.each([
  ["an address", { baseUrl: "undefined" }],
  ["a header", { headers: { Authorization: "Bearer ork_…" } }],
])("%s that is not valid is thrown", async (_, options) => {
  const { send, events } = follow(() => new Response(READY, { headers: HEADERS }), options);
  await expect(events.next()).rejects.toThrow(TypeError);
  expect(send).not.toHaveBeenCalled();
});

const failing = () => {
  throw new RangeError("mine");
};

test.each([
  ["onOpen", { onOpen: failing }],
  ["onGap", { onGap: failing }],
])("what %s throws is thrown", async (_, given) => {
  const { send, events } = follow(() => new Response(READY + EVENT, { headers: HEADERS }), {}, given);
  await expect(events.next()).rejects.toThrow(RangeError);
  expect(send).toHaveBeenCalledTimes(1);
});

test("a lost connection is made again", async () => {
  const { send, events } = follow(() => new Response(READY + EVENT, { headers: HEADERS }));
  expect((await events.next()).value?.cursor).toBe("7");
  const next = events.next();
  await vi.advanceTimersByTimeAsync(60_000);
  expect((await next).value?.cursor).toBe("7");
  expect(send).toHaveBeenCalledTimes(2);
  await events.return();
});
