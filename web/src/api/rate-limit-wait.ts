/** Waits that the service asks for with 429, so that the page can count them down. */
import { useSyncExternalStore } from "react";

/** Longer waits are left to the person: the refusal says when to try again. */
export const LONGEST_WAIT_S = 60;

let until = 0;
const listeners = new Set<() => void>();
const notifyAll = () => listeners.forEach((notify) => notify());
const subscribe = (listener: () => void) => (listeners.add(listener), () => listeners.delete(listener));

/** Wait as long as the service asks for, and a moment longer. */
export async function waitForRateLimit(seconds: number): Promise<void> {
  until = Math.max(until, Date.now() + seconds * 1000);
  notifyAll();
  const counting = setInterval(notifyAll, 250);
  await new Promise((resolve) => setTimeout(resolve, seconds * 1000 + 250));
  clearInterval(counting);
  notifyAll();
}

/** Return the seconds until the next request is made; 0 if none waits. */
export const useRateLimitWait = (): number =>
  useSyncExternalStore(subscribe, () => Math.max(0, Math.ceil((until - Date.now()) / 1000)));
