/**
 * The events of the account, as they happen.
 *
 *     for await (const event of followEvents(options, { events: "agent:*" })) console.log(event.event);
 */
import { ApiError, type ClientOptions, type Schemas } from "./client.js";
import { backoff, frames, pause } from "./stream.js";

/** An event, with its cursor. */
export type Event = Schemas["AccountEvent"];

export interface FollowOptions {
  /** Names or patterns, separated by commas; all events by default. */
  events?: string;
  /** The target id of a session: only its events. */
  target?: string;
  /** Begin after the event with this cursor; with the present by default. */
  after?: string;
  signal?: AbortSignal;
  /** Called when the stream is open, the first time and after each loss. */
  onOpen?: () => void;
  /** Called if events are missing because they are older than the service keeps. */
  onGap?: () => void;
}

/**
 * Yield events until `signal` is aborted. It connects again by itself, and resumes where it was;
 * while the service cannot be reached it goes on trying.
 *
 * @throws ApiError if the service refuses it: the key is not valid, or has no scope for events.
 * @throws TypeError if the address or a header of `options` is not valid.
 * @throws What `onOpen` or `onGap` throws.
 */
export async function* followEvents(
  options: ClientOptions,
  follow: FollowOptions = {},
): AsyncGenerator<Event, void, void> {
  const { signal } = follow;
  const send = options.fetch ?? fetch;
  let cursor = follow.after;
  let failures = 0;
  while (!signal?.aborted) {
    let delay: number | undefined;
    const url = streamUrl(options, follow, cursor);
    const headers = new Headers(options.headers);
    try {
      for await (const frame of frames(send, url, { headers }, signal)) {
        if (frame.event === "stream:ready") {
          const ready = JSON.parse(frame.data) as { resume: string; cursor: string };
          failures = 0;
          notify(follow.onOpen);
          if (ready.resume === "gap") notify(follow.onGap);
          // With `ok` what was missed has come already, or comes next: its frames have cursors.
          if (ready.resume !== "ok" || cursor === undefined) cursor = ready.cursor;
        } else if (frame.event === "stream:heartbeat") {
          cursor = (JSON.parse(frame.data) as { cursor: string }).cursor;
        } else if (frame.event === "stream:end") {
          const end = JSON.parse(frame.data) as { reason: string; retryAfterMs: number };
          if (end.reason === "unauthorized") {
            throw new ApiError(401, "The key is no longer valid", undefined, [], undefined, undefined);
          }
          delay = end.retryAfterMs;
        } else if (frame.id !== undefined) {
          cursor = frame.id;
          yield { ...(JSON.parse(frame.data) as Omit<Event, "cursor">), cursor: frame.id };
        }
      }
    } catch (error) {
      if (error instanceof CallbackError) throw error.cause;
      if (signal?.aborted) return;
      if (error instanceof SyntaxError) throw error;
      if (error instanceof ApiError && error.status < 500 && error.status !== 429) throw error;
      if (error instanceof ApiError && error.retryAfter) delay = error.retryAfter * 1000;
    }
    failures += 1;
    await pause(delay ?? backoff(failures), signal);
  }
}

/** A callback failed: its error is not a lost connection. */
class CallbackError extends Error {}

function notify(callback: (() => void) | undefined): void {
  try {
    callback?.();
  } catch (cause) {
    throw new CallbackError("A callback failed", { cause });
  }
}

function streamUrl(options: ClientOptions, follow: FollowOptions, cursor: string | undefined): URL {
  const url = new URL(`${options.baseUrl}/api/v1/events`);
  if (follow.events) url.searchParams.set("events", follow.events);
  if (follow.target) url.searchParams.set("target", follow.target);
  if (cursor !== undefined) url.searchParams.set("after", cursor);
  return url;
}
