import { useNavigate } from "@tanstack/react-router";
import { useEffectEvent, useLayoutEffect } from "react";
import { isTyping } from "@/ui/is-typing";

interface Handlers {
  openSwitcher: () => void;
  openKeys: () => void;
}

const SEQUENCE_MS = 1500;

/** The keys that work on every page. */
export function useShortcuts(handlers: Handlers): void {
  const navigate = useNavigate();
  const openSwitcher = useEffectEvent(handlers.openSwitcher);
  const openKeys = useEffectEvent(handlers.openKeys);
  // An effect that runs later would miss a key that is pressed as soon as the page is shown.
  useLayoutEffect(() => {
    let goAt = 0;
    const onKey = (event: KeyboardEvent) => {
      if ((event.metaKey || event.ctrlKey) && !event.shiftKey && !event.altKey && event.key.toLowerCase() === "k") {
        if (event.target instanceof HTMLElement && event.target.closest(".xterm")) return;
        event.preventDefault();
        openSwitcher();
        return;
      }
      if (event.metaKey || event.ctrlKey || event.altKey || isTyping(event.target)) return;
      const going = event.timeStamp - goAt < SEQUENCE_MS;
      goAt = 0;
      if (going && event.key === "s") void navigate({ to: "/" });
      else if (going && event.key === "i") void navigate({ to: "/inbox" });
      else if (going && event.key === "m") void navigate({ to: "/machines" });
      else if (going && event.key === "h") void navigate({ to: "/history" });
      else if (event.key === "g") goAt = event.timeStamp;
      else if (event.key === "?") openKeys();
      else if (event.key === "/") {
        const filter = document.querySelector<HTMLInputElement>("[data-list-filter]");
        if (!filter) return;
        event.preventDefault();
        filter.focus();
        filter.select();
      } else if (event.key === "j" || event.key === "k") move(event.key === "j" ? 1 : -1);
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [navigate]);
}

/** Give the focus to the next or previous row of the page's list. */
function move(step: 1 | -1): void {
  const rows = [...document.querySelectorAll<HTMLElement>("[data-row]")];
  if (rows.length === 0) return;
  const current = rows.findIndex((row) => row === document.activeElement || row.contains(document.activeElement));
  const next = current < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, current + step));
  rows[next]?.focus();
  rows[next]?.scrollIntoView({ block: "nearest" });
}
