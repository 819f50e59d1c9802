import { searchTexts } from "@/ui/search-texts";

const TABS = ["chat", "terminal", "changes", "files", "debug"] as const;

/** The parts of a session's page. */
export type Tab = (typeof TABS)[number];

interface SessionSearch {
  tab?: Tab;
  /** What the files show. */
  path?: string;
  /** What changes are compared with, and the file that was opened last. */
  base?: string;
  file?: string;
}

/** Return what the address says about a session's page: a reload and the browser's buttons keep it. */
export function sessionSearch(search: Record<string, unknown>): SessionSearch {
  const tab = TABS.find((name) => name === search.tab);
  if (tab === undefined || tab === "chat") return {};
  if (tab === "files") return { tab, ...searchTexts(search, "path") };
  if (tab === "changes") return { tab, ...searchTexts(search, "base", "file") };
  return { tab };
}
