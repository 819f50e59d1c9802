import { onlineManager } from "@tanstack/react-query";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { api } from "@/api/client";
import { LONGEST_WAIT_S } from "@/api/rate-limit-wait";
import { queryClient } from "./query-client";

// Hoisted above the imports: these modules read the page's address.
vi.hoisted(() => {
  vi.stubGlobal("document", { baseURI: "http://service/" });
  vi.stubGlobal("location", { pathname: "/login" });
});

const send = vi.fn<typeof fetch>();
const limited = (seconds: number) =>
  new Response('{"error": "Too many requests"}', { status: 429, headers: { "Retry-After": `${seconds}` } });
const readDevice = () => api.get("/api/v1/auth/device", { query: { userCode: "A" } });
const approve = () => api.post("/api/v1/auth/device/approve", { body: { userCode: "A", action: "approve" } });
const logIn = () => api.post("/api/v1/auth/login", { body: { email: "a@example.org", password: "p" } });

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal("fetch", send);
});

afterEach(() => {
  send.mockReset();
  queryClient.clear();
  onlineManager.setOnline(true);
  vi.useRealTimers();
});

test("a read that is refused for long fails at once", async () => {
  send.mockImplementation(async () => limited(LONGEST_WAIT_S + 1));
  const read = queryClient.fetchQuery({ queryKey: ["device"], queryFn: readDevice });
  await expect(read).rejects.toMatchObject({ status: 429 });
  expect(send).toHaveBeenCalledTimes(1);
});

test("a request that is refused for a short time is made again", async () => {
  send.mockResolvedValueOnce(limited(2)).mockResolvedValueOnce(Response.json({}));
  const done = approve();
  await vi.advanceTimersByTimeAsync(1999);
  expect(send).toHaveBeenCalledTimes(1);
  await vi.advanceTimersByTimeAsync(1000);
  await done;
  expect(send).toHaveBeenCalledTimes(2);
});

test("the login form says at once when to try again", async () => {
  send.mockResolvedValueOnce(limited(2));
  await expect(logIn()).rejects.toMatchObject({ status: 429, retryAfter: 2 });
});

test("a browser that counts as offline reads all the same", async () => {
  onlineManager.setOnline(false);
  send.mockResolvedValueOnce(Response.json({ machine: 1 }));
  expect(await queryClient.fetchQuery({ queryKey: ["device"], queryFn: readDevice })).toEqual({ machine: 1 });
});
