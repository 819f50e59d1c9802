import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { startLive, type Live } from "./live";

type Listener = (event: { data: unknown }) => void;

/** The other tab of this browser: it has the lock, and answers as long as it is not frozen. */
class Leader {
  static channel: { onmessage: Listener | null; postMessage(note: unknown): void; close(): void };
  answers = true;
  asked = 0;

  readonly locks = {
    request(
      name: string,
      options: { steal?: boolean; signal?: AbortSignal },
      lead: () => Promise<void>,
    ): Promise<void> {
      names.push(name);
      if (options.steal) return lead();
      return new Promise((_, refuse) => options.signal?.addEventListener("abort", () => refuse(new Error("aborted"))));
    },
  };

  /** Take what a tab says on the channel. */
  take(note: { type: string }): void {
    if (note.type !== "join") return;
    this.asked += 1;
    const state = { live: true, lastAt: Date.now() };
    if (this.answers) queueMicrotask(() => this.say({ type: "state", state }));
  }

  say(note: unknown): void {
    Leader.channel.onmessage?.({ data: note });
  }
}

let leader: Leader;
let live: Live | undefined;
let names: string[];
let received: string[];
const opened = vi.fn();

/** Open a tab. */
function join(user = "user_a"): void {
  live = startLive("http://outrider.example/api/v1/events", user, () => undefined);
  live.onFrame((frame) => received.push(`${frame.event} ${frame.data}`));
}

beforeEach(() => {
  vi.useFakeTimers();
  leader = new Leader();
  names = [];
  received = [];
  opened.mockReset().mockImplementation(() => new Promise(() => undefined));
  vi.stubGlobal("fetch", opened);
  vi.stubGlobal("navigator", { locks: leader.locks });
  vi.stubGlobal(
    "BroadcastChannel",
    class {
      onmessage: Listener | null = null;
      constructor(name: string) {
        names.push(name);
        Leader.channel = this;
      }
      postMessage = (note: { type: string }) => leader.take(note);
      close = () => undefined;
    },
  );
  join();
});

afterEach(() => {
  live?.stop();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

test("a leader that answers keeps the stream, however quiet it is", async () => {
  await vi.advanceTimersByTimeAsync(120_000);
  expect(leader.asked).toBeGreaterThan(2);
  expect(opened).not.toHaveBeenCalled();
  expect(live?.state().live).toBe(true);
});

test("a frozen leader loses the stream to a tab that asks in vain, once", async () => {
  leader.answers = false;
  await vi.advanceTimersByTimeAsync(40_000);
  expect(opened).toHaveBeenCalledTimes(1);
  const asked = leader.asked;
  await vi.advanceTimersByTimeAsync(10_000);
  expect(leader.asked).toBe(asked); // it leads now, and asks nobody
});

test("a tab that joins reads what it has not heard, once", async () => {
  await vi.advanceTimersByTimeAsync(120_000);
  leader.say({ type: "frame", frame: { id: "7", event: "agent:error", data: "{}" } });
  expect(received).toEqual(['stream:ready {"resume":"joined"}', "agent:error {}"]);
});

test("a tab that joins a leader without a stream reads when the stream is open", () => {
  live?.stop();
  leader.answers = false;
  received = [];
  join();
  leader.say({ type: "state", state: { live: false, lastAt: undefined } });
  expect(received).toEqual([]);
  leader.say({ type: "frame", frame: { id: "7", event: "agent:error", data: "{}" } });
  expect(received).toEqual(['stream:ready {"resume":"joined"}', "agent:error {}"]);
});

test("only tabs of the same user of the same service share a stream", () => {
  join("user_b");
  const name = (user: string) => `outrider-events:${user}:http://outrider.example/api/v1/events`;
  expect(names).toEqual([...Array(2).fill(name("user_a")), ...Array(2).fill(name("user_b"))]);
});
