export const TABS = ["chat", "terminal", "changes", "files", "debug"] as const;

/** The parts of a session's page. */
export type Tab = (typeof TABS)[number];
