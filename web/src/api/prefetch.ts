/**
 * The requests of the first page. The browser runs this file before it has loaded the others, so
 * that the responses are there when the page is drawn.
 */
import { address } from "outrider-client";
import { pageFetch } from "./page-secret";
import { machineOf, sessionAt } from "./target-id";

/** The address of the service with its base path, without `/` at the end. */
export const BASE = new URL(document.baseURI).href.replace(/\/$/, "");
export const BASE_PATH = new URL(document.baseURI).pathname;

/** How many messages of a chat are read at first. */
export const FIRST_MESSAGES = 200;
/** The most sessions that the lists have: as many as one response holds. */
export const MOST_SESSIONS = 1000;

/** Return the paths that the page at a path reads first; `queries.ts` reads the same ones. */
function firstPaths(path: string): string[] {
  if (path === `${BASE_PATH}login`) return [];
  const shell = [
    "/api/v1/account",
    address("/api/v1/sessions", { query: { state: "running", limit: MOST_SESSIONS } }),
    address("/api/v1/daemons", { query: { state: "all" } }),
    "/api/v1/approvals",
  ];
  const ideId = sessionAt(path, BASE_PATH);
  if (ideId === undefined) return shell;
  return [
    address("/api/v1/shortcuts/{ideId}/chat", { path: { ideId }, query: { limit: FIRST_MESSAGES } }),
    address("/api/v1/daemons/{daemonId}/status", { path: { daemonId: machineOf(ideId) } }),
    ...shell,
  ];
}

const responses = new Map<string, Promise<Response>>();
for (const path of firstPaths(location.pathname)) {
  const response = pageFetch(BASE + path, { headers: { Accept: "application/json" }, credentials: "same-origin" });
  response.catch(() => undefined); // a failure is for the one who takes the response
  responses.set(BASE + path, response);
}

/** Like `pageFetch`, but the first GET of an address that has been requested here takes that response. */
export const fetchFirst: typeof fetch = (input, init) => {
  const key = input instanceof Request ? input.url : input.toString();
  const response = init?.method === "GET" ? responses.get(key) : undefined;
  if (!response) return pageFetch(input, init);
  responses.delete(key);
  return response;
};
