import { useSyncExternalStore } from "react";
import { exactTime, shortAge } from "@/text/format";

let now = Date.now();
const listeners = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(() => {
    now = Date.now();
    listeners.forEach((notify) => notify());
  }, 20_000);
  return () => {
    listeners.delete(listener);
    if (listeners.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  };
}

/** How long ago a time was; the exact local time on hover. */
export function Age({ at, className }: { at: number; className?: string }) {
  const current = useSyncExternalStore(subscribe, () => now);
  return (
    <time dateTime={new Date(at).toISOString()} title={exactTime(at)} className={className}>
      {shortAge(at, Math.max(current, Date.now() - 20_000))}
    </time>
  );
}
