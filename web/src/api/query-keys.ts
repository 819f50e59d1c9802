/**
 * The names of everything that is read from the service. An event or an action that makes something
 * out of date names it by the same function that its query is made with; a name that is the beginning
 * of others stands for all of them.
 */
export const keys = {
  account: () => ["account"] as const,
  logins: () => ["account", "logins"] as const,
  audit: () => ["audit"] as const,
  machines: () => ["machines"] as const,
  machine: (daemonId: string) => ["machine", daemonId] as const,
  terminals: (daemonId: string) => ["terminals", daemonId] as const,
  device: (code: string) => ["device", code] as const,
  sessions: () => ["sessions"] as const,
  questions: () => ["questions"] as const,
  status: (targetId: string) => ["status", targetId] as const,
  chat: (targetId: string) => ["chat", targetId] as const,
  queue: (targetId: string) => ["queue", targetId] as const,
  debug: (targetId: string) => ["debug", targetId] as const,
  changes: (targetId: string, base: string) => ["changes", targetId, base] as const,
  files: (targetId: string, path: string) => ["files", targetId, path] as const,
  history: () => ["history"] as const,
  historyPages: (q: string) => ["history", "pages", q] as const,
  endedSession: (sessionId: string) => ["history", "session", sessionId] as const,
  recentlyEnded: () => ["history", "recent"] as const,
  webhooks: () => ["webhooks"] as const,
  deliveries: (webhookId: string) => ["deliveries", webhookId] as const,
  delivery: (webhookId: string, deliveryId: string) => ["delivery", webhookId, deliveryId] as const,
};
