import { Link } from "@tanstack/react-router";
import { memo, type KeyboardEvent } from "react";
import { t } from "@/text";
import { cn } from "@/ui/cn";
import type { Tab } from "./session-search";

/** Give the focus to the tab beside the one that has it. */
function moveFocus(event: KeyboardEvent): void {
  const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
  if (step === 0) return;
  const all = [...(event.currentTarget.parentElement?.children ?? [])] as HTMLElement[];
  const next = all[(all.indexOf(event.currentTarget as HTMLElement) + step + all.length) % all.length];
  next?.focus();
  // An open terminal takes the focus: the next key would go to the agent. Enter opens it.
  if (next?.dataset.tab !== "terminal") next?.click();
}

interface TabEntry {
  id: Tab;
  label: string;
}

export const tabsOf = (kind: string | undefined): TabEntry[] => [
  { id: "chat", label: t("session.chat") },
  ...(kind === "cli" ? [{ id: "terminal" as const, label: t("session.terminal") }] : []),
  { id: "changes", label: t("session.changes") },
  { id: "files", label: t("session.files") },
  { id: "debug", label: t("session.debug") },
];

export const Tabs = memo(function Tabs({
  tabs,
  current,
  targetId,
}: {
  tabs: TabEntry[];
  current: Tab;
  targetId: string;
}) {
  return (
    <div role="tablist" aria-label={t("session.tabs")} className="flex">
      {tabs.map(({ id, label }) => (
        <Link
          key={id}
          role="tab"
          aria-selected={id === current}
          data-tab={id}
          onKeyDown={moveFocus}
          tabIndex={id === current ? 0 : -1}
          to="/sessions/$targetId"
          params={{ targetId }}
          search={id === "chat" ? {} : { tab: id }}
          replace
          className={cn(
            "-mb-px border-b-2 px-2.5 py-2 text-sm font-medium",
            id === current ? "border-accent text-text" : "border-transparent text-soft hover:text-text",
          )}
        >
          {label}
        </Link>
      ))}
    </div>
  );
});
