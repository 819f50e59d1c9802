import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { TimedWorker } from "./timed-worker";

/** A worker that responds when the test says so, or never, as one does that a hostile text keeps busy. */
class StubWorker {
  onmessage: (event: { data: object }) => void = () => undefined;
  onerror: () => void = () => undefined;
  requests: string[] = [];
  ended = false;
  postMessage = (request: string) => void this.requests.push(request);
  terminate = () => void (this.ended = true);
  sends = (data: object) => this.onmessage({ data });
}

let workers: StubWorker[];
let pool: TimedWorker<string, { text: string }>;

beforeEach(() => {
  vi.useFakeTimers();
  workers = [];
  pool = new TimedWorker(() => {
    const worker = new StubWorker();
    workers.push(worker);
    return worker as unknown as Worker;
  });
});
afterEach(() => void vi.useRealTimers());

test("one request at a time is answered, all by the same worker", async () => {
  const answers = Promise.all([pool.ask("a"), pool.ask("b")]);
  expect(workers[0]?.requests).toEqual(["a"]);
  workers[0]?.sends({ started: true });
  workers[0]?.sends({ text: "A" });
  workers[0]?.sends({ text: "B" });
  expect(await answers).toEqual([{ text: "A" }, { text: "B" }]);
  expect(workers).toHaveLength(1);
});

test("a request that takes too long ends its worker, and the next one gets a new worker", async () => {
  const hostile = pool.ask("hostile");
  const next = pool.ask("next");
  workers[0]?.sends({ started: true });
  await vi.advanceTimersByTimeAsync(10_000);
  expect(await hostile).toBeUndefined();
  expect(workers[0]?.ended).toBe(true);
  expect(workers[1]?.requests).toEqual(["next"]);
  workers[1]?.sends({ text: "NEXT" });
  expect(await next).toEqual({ text: "NEXT" });
});

test("loading takes longer than the limit of a request", async () => {
  const answer = pool.ask("slow to load");
  await vi.advanceTimersByTimeAsync(10_000);
  workers[0]?.sends({ started: true });
  workers[0]?.sends({ text: "loaded" });
  expect(await answer).toEqual({ text: "loaded" });
});

test("a worker that cannot be loaded answers nothing", async () => {
  const answer = pool.ask("a");
  workers[0]?.onerror();
  expect(await answer).toBeUndefined();
});

test("of many requests, the oldest ones are dropped", async () => {
  const answers = Array.from({ length: 102 }, (_, i) => pool.ask(String(i)));
  expect(await answers[1]).toBeUndefined();
  workers[0]?.sends({ text: "0" });
  expect(await answers[0]).toEqual({ text: "0" });
  expect(workers[0]?.requests).toEqual(["0", "2"]);
});
