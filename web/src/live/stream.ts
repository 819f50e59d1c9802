import type { ApiError } from "outrider-client";
import { backoff, frames, pause, type Frame } from "outrider-client/stream";
import { pageFetch } from "@/api/page-secret";

const REQUEST: RequestInit = { credentials: "same-origin", cache: "no-store" };

interface StreamEvents {
  frame(frame: Frame): void;
  /** Called when the stream is open (`stream:ready` was read) and when it is lost. */
  state(live: boolean): void;
  /** The session is over; the stream is not opened again. */
  unauthorized(): void;
}

interface StreamOptions {
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
  const send = options.fetch ?? pageFetch;
  let cursor = options.cursor;
  let failures = 0;
  while (!signal.aborted) {
    let delay: number | undefined;
    const url = new URL(options.url);
    if (cursor !== undefined) url.searchParams.set("after", cursor);
    try {
      for await (const frame of frames(send, url, REQUEST, signal)) {
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
    } catch (error) {
      if (signal.aborted) return;
      const status = (error as Partial<ApiError>).status;
      if (status === 401) return events.unauthorized();
      const after = (error as Partial<ApiError>).retryAfter;
      if (after !== undefined) delay = after * 1000;
    }
    events.state(false);
    failures += 1;
    await pause(delay ?? backoff(failures), signal);
  }
}
