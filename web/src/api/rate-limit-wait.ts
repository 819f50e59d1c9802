/** Waits that the service asks for with 429, so that the page can count them down. */
import { useEffect, useState, useSyncExternalStore } from "react";

/** Longer waits are left to the person: the refusal says when to try again. */
export const LONGEST_WAIT_S = 60;

let until = 0;
const listeners = new Set<() => void>();
const subscribe = (listener: () => void) => (listeners.add(listener), () => listeners.delete(listener));

/** Wait as long as the service asks for, and a moment longer. */
export function waitLimited(seconds: number): Promise<void> {
  until = Math.max(until, Date.now() + seconds * 1000);
  listeners.forEach((notify) => notify());
  return new Promise((resolve) => setTimeout(resolve, seconds * 1000 + 250));
}

/** Return the seconds until the next request is made; 0 if none waits. */
export function useLimited(): number {
  const end = useSyncExternalStore(subscribe, () => until);
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    setNow(Date.now());
    if (end <= Date.now()) return;
    const timer = setInterval(() => {
      setNow(Date.now());
      if (end <= Date.now()) clearInterval(timer);
    }, 250);
    return () => clearInterval(timer);
  }, [end]);
  return Math.max(0, Math.ceil((end - now) / 1000));
}
