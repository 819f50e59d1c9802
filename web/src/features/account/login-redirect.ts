/** Return a path of this site that a page may lead to after the login; `/` for any other text. */
export function safeNext(next: unknown, site = location.origin): string {
  if (typeof next !== "string" || !next.startsWith("/") || /^\/[/\\]/.test(next) || /[\t\n\r]/.test(next)) return "/";
  const url = new URL(next, site);
  return url.origin === site && url.pathname !== "/login" ? url.pathname + url.search : "/";
}
