/**
 * The secret of this site's pages, which makes the session's cookie work.
 *
 * A browser sends the cookie to every port of the host, but its storage belongs to this port alone.
 * A login binds the cookie to the secret, so it must be the same in all tabs.
 */
const key = () => `outrider:page-secret:${new URL(document.baseURI).pathname}`;

/** Used where the browser has no storage: until the page is loaded again. */
let unsaved: string | undefined;

function pageSecret(): string {
  try {
    const saved = localStorage.getItem(key());
    if (saved) return saved;
    localStorage.setItem(key(), (unsaved ??= randomSecret()));
  } catch {
    // no storage
  }
  return (unsaved ??= randomSecret());
}

/** Like `fetch`, for requests to this service. */
export const pageFetch: typeof fetch = (input, init) => {
  const headers = new Headers(init?.headers);
  headers.set("X-Outrider-Page-Secret", pageSecret());
  return fetch(input, { ...init, headers });
};

/** Open a WebSocket of this service: a page can give it no header, but a protocol. */
export const pageSocket = (url: URL): WebSocket =>
  new WebSocket(url, ["outrider.page", `outrider.page.${pageSecret()}`]);

function randomSecret(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(32));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
