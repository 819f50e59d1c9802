import { useEffect, useState, useSyncExternalStore } from "react";
import { BASE } from "@/api/client";
import { queryClient } from "@/api/query-client";
import { applyFrame } from "./apply";
import { deltas, type Draft } from "./deltas";
import { startLive, type Live, type LiveState } from "./live";

let live: Live | undefined;
const subscribers = new Set<() => void>();
const NOT_LIVE: LiveState = { live: false, lastAt: undefined };

/** Open the event stream of a user, or join that of another tab in which the same user is logged in. */
export function openLive(user: string, onUnauthorized: () => void): void {
  live?.stop();
  live = startLive(`${BASE}/api/v1/events?deltas=true`, user, onUnauthorized);
  live.onFrame((frame) => {
    try {
      applyFrame(queryClient, frame);
    } catch (error) {
      // An event that this page cannot read must not end the stream, which all tabs share.
      console.error("event not applied", frame.event, error);
    }
  });
  live.onState(() => subscribers.forEach((notify) => notify()));
}

export function closeLive(): void {
  live?.stop();
  live = undefined;
}

function useLive(): LiveState {
  return useSyncExternalStore(
    (notify) => (subscribers.add(notify), () => subscribers.delete(notify)),
    () => live?.state() ?? NOT_LIVE,
  );
}

/** Whether updates have been lost for longer than a reconnection takes. */
export function useLost(): LiveState | undefined {
  const state = useLive();
  const [lost, setLost] = useState(false);
  useEffect(() => {
    if (state.live) return;
    const timer = setTimeout(() => setLost(true), 2500);
    return () => {
      clearTimeout(timer);
      setLost(false);
    };
  }, [state.live]);
  return lost && !state.live ? state : undefined;
}

export function useDrafts(targetId: string): readonly Draft[] {
  return useSyncExternalStore(deltas.subscribe, () => deltas.read(targetId));
}
