const PROTOCOLS = new Set(["http:", "https:", "mailto:"]);

/** Return the address if a link in an agent's text may lead there. Relative ones lead nowhere. */
export function safeLink(href: unknown): string | undefined {
  if (typeof href !== "string") return undefined;
  try {
    const url = new URL(href);
    return PROTOCOLS.has(url.protocol) ? url.href : undefined;
  } catch {
    return undefined;
  }
}
