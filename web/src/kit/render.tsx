/** What tests of components share: a page with a service behind it that the test scripts. */
import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, render } from "@testing-library/react";
import userEvent, { type UserEvent } from "@testing-library/user-event";
import type { ReactElement } from "react";
import { afterEach, beforeEach, vi } from "vitest";
import { queryClient } from "@/api/query-client";

/** Colours come from a worker; here none answers, and code stays plain. */
class SilentWorker {
  postMessage(): void {}
  terminate(): void {}
}

beforeEach(() => void vi.stubGlobal("Worker", SilentWorker));
afterEach(() => {
  cleanup();
  queryClient.clear();
  sessionStorage.clear();
  vi.unstubAllGlobals();
});

type Answer = object | Response | Promise<object | Response>;

export interface Service {
  /** The bodies of the requests so far, by method and the end of the path: `POST approve`. */
  taken: { name: string; body: unknown }[];
}

/** Answer requests, named by method and the end of their path, as in `POST approve`; others never get an answer. */
export function service(answers: Record<string, (body: unknown) => Answer>): Service {
  const taken: Service["taken"] = [];
  vi.stubGlobal("fetch", async (url: string, init?: RequestInit) => {
    const path = new URL(url).pathname;
    const name = `${init?.method ?? "GET"} ${path.slice(path.lastIndexOf("/") + 1)}`;
    const body: unknown = typeof init?.body === "string" ? JSON.parse(init.body) : undefined;
    if (name.startsWith("POST") || name.startsWith("DELETE")) taken.push({ name, body });
    const answer = answers[name];
    if (!answer) return new Promise(() => undefined);
    const given = await answer(body);
    return given instanceof Response ? given : Response.json(given);
  });
  return { taken };
}

/** Return a refusal as the service sends it. */
export const refusal = (status: number, message: string, code?: string): Response =>
  Response.json({ error: message, code }, { status });

/** Show an element, and return the person at it. */
export function show(element: ReactElement): UserEvent & { rerender: (element: ReactElement) => void } {
  const within = (shown: ReactElement) => <QueryClientProvider client={queryClient}>{shown}</QueryClientProvider>;
  const { rerender } = render(within(element));
  return Object.assign(userEvent.setup(), { rerender: (next: ReactElement) => rerender(within(next)) });
}
