import { refusal, type ApiError } from "outrider-client";
import { frameParser, type Frame } from "./sse";

/** Without a frame for this long the connection counts as lost: heartbeats come every 10 s. */
export const SILENCE_MS = 25_000;
const FIRST_DELAY_MS = 500;
const LONGEST_DELAY_MS = 15_000;

export interface StreamEvents {
  frame(frame: Frame): void;
  /** Called when the stream is open (`stream:ready` was read) and when it is lost. */
  state(live: boolean): void;
  /** The session is over; the stream is not opened again. */
  unauthorized(): void;
}

export interface StreamOptions {
  url: string;
  /** The cursor to resume after; kept up to date. */
  cursor: string | undefined;
  events: StreamEvents;
  signal: AbortSignal;
  fetch?: typeof fetch;
}

/** Keep an event stream open, resumed where it was lost, until `signal` is aborted. */
export async function keepStream(options: StreamOptions): Promise<void> {
  const { events, signal } = options;
  let cursor = options.cursor;
  let failures = 0;
  while (!signal.aborted) {
    let delay: number | undefined;
    const silence = new AbortController();
    const both = AbortSignal.any([signal, silence.signal]);
    let timer = setTimeout(() => silence.abort(), SILENCE_MS);
    try {
      const url = new URL(options.url);
      if (cursor !== undefined) url.searchParams.set("after", cursor);
      const send = options.fetch ?? fetch;
      const response = await send(url, {
        headers: { Accept: "text/event-stream" },
        credentials: "same-origin",
        cache: "no-store",
        signal: both,
      });
      if (!response.ok || !response.body) throw await refusal(response);
      const parse = frameParser();
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        clearTimeout(timer);
        timer = setTimeout(() => silence.abort(), SILENCE_MS);
        for (const frame of parse(value)) {
          if (frame.event === "stream:end") {
            const end = JSON.parse(frame.data) as { reason: string; retryAfterMs: number };
            if (end.reason === "unauthorized") return events.unauthorized();
            delay = end.retryAfterMs;
            continue;
          }
          if (frame.event === "stream:ready" || frame.event === "stream:heartbeat") {
            cursor = (JSON.parse(frame.data) as { cursor: string }).cursor;
          }
          if (frame.id !== undefined) cursor = frame.id;
          if (frame.event === "stream:ready") {
            failures = 0;
            events.state(true);
          }
          events.frame(frame);
        }
      }
    } catch (error) {
      if (signal.aborted) return;
      const status = (error as Partial<ApiError>).status;
      if (status === 401) return events.unauthorized();
      const after = (error as Partial<ApiError>).retryAfter;
      if (after !== undefined) delay = after * 1000;
    } finally {
      clearTimeout(timer);
    }
    events.state(false);
    failures += 1;
    const backoff = Math.min(LONGEST_DELAY_MS, FIRST_DELAY_MS * 2 ** Math.min(failures - 1, 6));
    await pause(delay ?? backoff * (0.75 + Math.random() / 2), signal);
  }
}

/** Wait, but not longer than until the network or the page comes back. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      globalThis.removeEventListener?.("online", done);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    globalThis.addEventListener?.("online", done);
    signal.addEventListener("abort", done);
  });
}
