/** Brings a person back to where they were on a page: how far it was scrolled, and the row with the focus. */
import type { AnyRouter } from "@tanstack/react-router";

interface Spot {
  top: number;
  /** The address of the row that had the focus. */
  row: string | null;
}

const MOST = 100;
const spots = new Map<string, Spot>();
let previous: string | undefined;

/** Return whether the page before this one in the tab's history is at this path. */
export const cameFrom = (path: string): boolean => previous === path;

const scroller = () => document.querySelector<HTMLElement>("[data-page]");

export function keepSpots(router: AnyRouter): void {
  router.subscribe("onBeforeLoad", ({ fromLocation, toLocation, pathChanged }) => {
    if (!fromLocation || !pathChanged) return;
    previous = toLocation.state.__TSR_index > fromLocation.state.__TSR_index ? fromLocation.pathname : undefined;
    const key = fromLocation.state.__TSR_key;
    const page = scroller();
    if (key === undefined || !page) return;
    spots.set(key, {
      top: page.scrollTop,
      row: document.activeElement?.closest("a[data-row]")?.getAttribute("href") ?? null,
    });
    const [oldest] = spots.keys();
    if (spots.size > MOST && oldest !== undefined) spots.delete(oldest);
  });
  router.subscribe("onRendered", ({ toLocation, pathChanged }) => {
    const spot = pathChanged && spots.get(toLocation.state.__TSR_key ?? "");
    const page = scroller();
    if (!spot || !page) return;
    page.scrollTop = spot.top;
    if (spot.row === null || document.activeElement !== document.body) return;
    page.querySelector<HTMLElement>(`a[data-row][href="${CSS.escape(spot.row)}"]`)?.focus({ preventScroll: true });
  });
}
