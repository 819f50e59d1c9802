import { useSyncExternalStore } from "react";

/** The width from which on styles with `md:` apply. */
const wide = matchMedia("(min-width: 48rem)");

function subscribe(listener: () => void): () => void {
  wide.addEventListener("change", listener);
  return () => wide.removeEventListener("change", listener);
}

/** Whether the window has room for a sidebar. */
export const useWide = (): boolean => useSyncExternalStore(subscribe, () => wide.matches);
