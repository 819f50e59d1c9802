/** Call a function as soon as the page has nothing else to do, or after a second. */
export function whenIdle(work: () => void): void {
  if (typeof requestIdleCallback === "function") requestIdleCallback(work, { timeout: 1000 });
  else setTimeout(work, 150); // Safari
}
