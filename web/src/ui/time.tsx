import { useSyncExternalStore } from "react";
import { exactTime, shortAge } from "@/text/format";

let now = Date.now();
/** Exact times are formatted a second after the first age is shown: the first one takes a phone 100 ms. */
let exact: "later" | "soon" | "now" = "later";
const listeners = new Set<() => void>();
const notifyAll = () => listeners.forEach((notify) => notify());
let timer: ReturnType<typeof setInterval> | undefined;

function tick(): void {
  now = Date.now();
  notifyAll();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  if (exact === "later") {
    exact = "soon";
    setTimeout(() => {
      exact = "now";
      notifyAll();
    }, 1000);
  }
  timer ??= setInterval(tick, 20_000);
  if (listeners.size === 1) tick();
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
  const hasTitle = useSyncExternalStore(subscribe, () => exact === "now");
  return (
    <time dateTime={new Date(at).toISOString()} title={hasTitle ? exactTime(at) : undefined} className={className}>
      {shortAge(at, current)}
    </time>
  );
}
