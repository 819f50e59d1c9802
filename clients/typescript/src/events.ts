/**
 * The events of the account, as they happen.
 *
 *     for await (const event of followEvents(options, { events: "agent:*" })) console.log(event.event);
 */
import { ApiError, refusal, type ClientOptions, type Schemas } from "./client.js";

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

/** Heartbeats come every 10 s: a connection without a byte for this long is lost. */
const SILENCE_MS = 25_000;
const FIRST_DELAY_MS = 500;
const LONGEST_DELAY_MS = 15_000;

/**
 * Yield events until `signal` is aborted. It connects again by itself, and resumes where it was;
 * while the service cannot be reached it goes on trying.
 *
 * @throws ApiError if the service refuses it: the key is not valid, or has no scope for events.
 */
export async function* followEvents(
  options: ClientOptions,
  follow: FollowOptions = {},
): AsyncGenerator<Event, void, void> {
  const { signal } = follow;
  let cursor = follow.after;
  let failures = 0;
  while (!signal?.aborted) {
    let delay: number | undefined;
    try {
      for await (const frame of frames(options, follow, cursor)) {
        if (frame.event === "stream:ready") {
          const ready = JSON.parse(frame.data) as { resume: string; cursor: string };
          failures = 0;
          follow.onOpen?.();
          if (ready.resume === "gap") follow.onGap?.();
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
      if (signal?.aborted) return;
      if (error instanceof SyntaxError) throw error;
      if (error instanceof ApiError && error.status < 500 && error.status !== 429) throw error;
      if (error instanceof ApiError && error.retryAfter) delay = error.retryAfter * 1000;
    }
    failures += 1;
    const backoff = Math.min(LONGEST_DELAY_MS, FIRST_DELAY_MS * 2 ** Math.min(failures - 1, 6));
    await pause(delay ?? backoff * (0.75 + Math.random() / 2), signal);
  }
}

interface Frame {
  id: string | undefined;
  event: string;
  data: string;
}

/** Open one stream, and yield its frames until it ends. */
async function* frames(
  options: ClientOptions,
  follow: FollowOptions,
  cursor: string | undefined,
): AsyncGenerator<Frame, void, void> {
  const url = new URL(`${options.baseUrl}/api/v1/events`);
  if (follow.events) url.searchParams.set("events", follow.events);
  if (follow.target) url.searchParams.set("target", follow.target);
  if (cursor !== undefined) url.searchParams.set("after", cursor);
  const stop = new AbortController();
  const abort = () => stop.abort();
  follow.signal?.addEventListener("abort", abort);
  let timer = setTimeout(abort, SILENCE_MS);
  try {
    const send = options.fetch ?? fetch;
    const headers = { ...options.headers, Accept: "text/event-stream" };
    const response = await send(url, { headers, signal: stop.signal });
    if (!response.ok || response.body === null) throw await refusal(response);
    const decoder = new TextDecoder();
    const reader = response.body.getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(abort, SILENCE_MS);
      // The service ends lines with \n, and frames with an empty line.
      const parts = (rest + decoder.decode(value, { stream: true })).split("\n\n");
      rest = parts.pop() ?? "";
      for (const part of parts) yield frameOf(part);
    }
  } finally {
    clearTimeout(timer);
    follow.signal?.removeEventListener("abort", abort);
    stop.abort();
  }
}

function frameOf(text: string): Frame {
  const frame: Frame = { id: undefined, event: "message", data: "" };
  for (const line of text.split("\n")) {
    const colon = line.indexOf(":");
    const value = line.slice(colon + 1).replace(/^ /, "");
    const field = line.slice(0, colon);
    if (field === "id") frame.id = value;
    else if (field === "event") frame.event = value;
    else if (field === "data") frame.data += frame.data === "" ? value : `\n${value}`;
  }
  return frame;
}

function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", done);
  });
}
