/**
 * One event stream for all tabs of a browser.
 *
 *     service ── stream ──▶ leading tab ── BroadcastChannel ──▶ all other tabs
 *
 * The tab that has the lock "outrider-events:USER:URL" leads: another user of this browser has another stream. When it is closed, the browser gives the lock
 * to another tab, which resumes after the last cursor that it has seen. Where there are no locks
 * (a page that came over plain http from another machine), each tab opens its own stream.
 *
 * A tab that joins asks the leader for its state. It has not heard what happened while it was loaded:
 * at the leader's first word of an open stream its listeners get a `stream:ready` as after a gap, to
 * read all again. It also asks when it has heard nothing for a while: the browser may have frozen the
 * leader, which keeps its lock. A leader that does not answer loses the lock to the tab that asked.
 */
import type { Frame } from "outrider-client/stream";
import { keepStream } from "./stream";

export interface LiveState {
  live: boolean;
  /** When the last frame came, in epoch milliseconds; undefined before the first one. */
  lastAt: number | undefined;
}

type Note =
  { type: "frame"; frame: Frame } | { type: "state"; state: LiveState } | { type: "join" } | { type: "unauthorized" };

export interface Live {
  state(): LiveState;
  onState(listener: () => void): () => void;
  onFrame(listener: (frame: Frame) => void): () => void;
  stop(): void;
}

/** What a tab that has joined hears first. */
const JOINED: Frame = { id: undefined, event: "stream:ready", data: '{"resume":"joined"}' };
/** After this long without a word the leader is asked whether it is there: heartbeats come every 10 s. */
const QUIET_MS = 15_000;
const ANSWER_MS = 5_000;

export function startLive(url: string, user: string, unauthorized: () => void): Live {
  const end = new AbortController();
  const stateListeners = new Set<() => void>();
  const frameListeners = new Set<(frame: Frame) => void>();
  // Services below other base paths of this origin have streams of their own.
  const name = `outrider-events:${user}:${url}`;
  const channel = new BroadcastChannel(name);
  let state: LiveState = { live: false, lastAt: undefined };
  let cursor: string | undefined;
  let leading = false;
  let heardAt = Date.now();
  let waiting = new AbortController();

  function setState(next: LiveState): void {
    const changed = next.live !== state.live;
    state = next;
    if (changed) stateListeners.forEach((listener) => listener());
  }

  const notify = (frame: Frame) => frameListeners.forEach((listener) => listener(frame));

  function take(frame: Frame): void {
    setState({ live: true, lastAt: Date.now() });
    if (frame.event === "stream:ready" || frame.event === "stream:heartbeat") {
      cursor = (JSON.parse(frame.data) as { cursor: string }).cursor;
    } else if (frame.id !== undefined) cursor = frame.id;
    notify(frame);
  }

  channel.onmessage = ({ data }: MessageEvent<Note>) => {
    if (data.type !== "join") heardAt = Date.now();
    if (data.type === "join") {
      if (leading) channel.postMessage({ type: "state", state } satisfies Note);
    } else if (leading) return;
    else if (data.type === "unauthorized") unauthorized();
    else {
      const open = data.type === "frame" || data.state.lastAt !== undefined;
      if (open && state.lastAt === undefined) notify(JOINED);
      if (data.type === "frame") take(data.frame);
      else setState(data.state);
    }
  };

  async function lead(signal: AbortSignal): Promise<void> {
    leading = true;
    const say = (note: Note) => channel.postMessage(note);
    await keepStream({
      url,
      cursor,
      signal,
      events: {
        frame(frame) {
          take(frame);
          say({ type: "frame", frame });
        },
        state(live) {
          setState({ live, lastAt: live ? Date.now() : state.lastAt });
          say({ type: "state", state });
        },
        unauthorized() {
          say({ type: "unauthorized" });
          unauthorized();
        },
      },
    });
  }

  /** Lead as soon as the lock is free, or take it from a leader that is frozen. */
  async function follow(steal: boolean): Promise<void> {
    waiting = new AbortController();
    const lost = new AbortController();
    const both = AbortSignal.any([end.signal, lost.signal]);
    const options = steal ? { steal } : { signal: AbortSignal.any([end.signal, waiting.signal]) };
    let led = false;
    try {
      await navigator.locks.request(name, options, () => {
        led = true;
        return lead(both);
      });
    } catch {
      if (!led) return; // it only waited: another call of this function takes the lock
      leading = false;
      lost.abort();
      if (!end.signal.aborted) void follow(false);
    }
  }

  function ask(): void {
    if (leading || Date.now() - heardAt < QUIET_MS) return;
    const askedAt = Date.now();
    channel.postMessage({ type: "join" } satisfies Note);
    setTimeout(() => {
      if (leading || heardAt >= askedAt || end.signal.aborted) return;
      heardAt = Date.now();
      waiting.abort();
      void follow(true);
    }, ANSWER_MS);
  }

  if (navigator.locks) void follow(false);
  else void lead(end.signal);
  channel.postMessage({ type: "join" } satisfies Note);
  const asking = setInterval(ask, ANSWER_MS * 1.2);

  return {
    state: () => state,
    onState: (listener) => (stateListeners.add(listener), () => stateListeners.delete(listener)),
    onFrame: (listener) => (frameListeners.add(listener), () => frameListeners.delete(listener)),
    stop() {
      end.abort();
      clearInterval(asking);
      channel.close();
    },
  };
}
