/** Reads a stream of server-sent events: for `followEvents`, and for the dashboard. */
import { refusal } from "./client.js";

/** A frame of the stream. */
export interface Frame {
  id: string | undefined;
  event: string;
  data: string;
}

/** Heartbeats come every 10 s: a connection without a byte for this long is lost. */
export const SILENCE_MS = 25_000;
const FIRST_DELAY_MS = 500;
const LONGEST_DELAY_MS = 15_000;
/** A timer with more than this fires at once: setTimeout has 31 bits. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/**
 * Open one stream, and yield its frames until it ends.
 *
 * The iteration fails when `signal` is aborted, and when nothing has come for `SILENCE_MS`.
 *
 * @param init - options of the request besides its signal.
 * @throws ApiError if the service refuses the request.
 */
export async function* frames(
  send: typeof fetch,
  url: URL,
  init: RequestInit,
  signal?: AbortSignal,
): AsyncGenerator<Frame, void, void> {
  const stop = new AbortController();
  const abort = () => stop.abort();
  signal?.addEventListener("abort", abort);
  if (signal?.aborted) abort(); // already aborted: no event will come
  let timer = setTimeout(abort, SILENCE_MS);
  try {
    const headers = new Headers(init.headers);
    headers.set("Accept", "text/event-stream");
    const response = await send(url, { ...init, headers, signal: stop.signal });
    if (!response.ok || response.body === null) throw await refusal(response);
    const decoder = new TextDecoder();
    const parse = frameParser();
    const reader = response.body.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(abort, SILENCE_MS);
      yield* parse(decoder.decode(value, { stream: true }));
    }
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", abort);
    stop.abort();
  }
}

/**
 * Split the text of a stream into frames.
 *
 * @returns a function that takes the next piece of text, which may end anywhere, and returns the
 *   frames that it completes.
 */
export function frameParser(): (piece: string) => Frame[] {
  let rest = "";
  let frame = emptyFrame();
  return (piece) => {
    const complete: Frame[] = [];
    rest += piece;
    // A line ends with \r\n, \n or \r; a \r at the very end may be the first half of \r\n.
    for (;;) {
      const match = /\r\n|\n|\r(?!$)/.exec(rest);
      if (!match) return complete;
      const line = rest.slice(0, match.index);
      rest = rest.slice(match.index + match[0].length);
      if (line === "") {
        if (frame.data.length > 0) complete.push({ ...frame, data: frame.data.join("\n") });
        frame = emptyFrame();
        continue;
      }
      const colon = line.indexOf(":");
      if (colon === 0) continue; // a comment
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "event") frame.event = value;
      else if (field === "data") frame.data.push(value);
      else if (field === "id") frame.id = value;
    }
  };
}

const emptyFrame = () => ({ id: undefined as string | undefined, event: "message", data: [] as string[] });

/** Return the milliseconds to wait before the next attempt, after `failures` in a row. */
export function backoff(failures: number): number {
  const delay = Math.min(LONGEST_DELAY_MS, FIRST_DELAY_MS * 2 ** Math.min(failures - 1, 6));
  return delay * (0.75 + Math.random() / 2);
}

/**
 * Wait until the time is over (24 days at most), `signal` is aborted, or the browser reports the
 * network again.
 */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      globalThis.removeEventListener?.("online", done);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, Math.min(ms, LONGEST_TIMER_MS));
    globalThis.addEventListener?.("online", done); // Node has none
    signal?.addEventListener("abort", done);
  });
}
