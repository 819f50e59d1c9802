import { frameParser } from "outrider-client/stream";
import { expect, test } from "vitest";
import { keepStream } from "./stream";

const ready = (cursor: string) => `event: stream:ready\ndata: {"resume":"ok","cursor":"${cursor}"}\n\n`;
const stream = (text: string) => new Response(text, { headers: { "Content-Type": "text/event-stream" } });
const end = (reason: string) => `event: stream:end\ndata: {"reason":"${reason}","retryAfterMs":0}\n\n`;

/** Give these responses one after the other; return the addresses that were asked, and what was said. */
async function follow(responses: Response[]): Promise<{ asked: string[]; said: string[] }> {
  const asked: string[] = [];
  const said: string[] = [];
  const stop = new AbortController();
  await keepStream({
    url: "http://service.example/api/v1/events?deltas=true",
    cursor: undefined,
    signal: stop.signal,
    async fetch(url) {
      asked.push((url as URL).search.slice(1));
      const response = responses.shift();
      if (response) return response;
      stop.abort();
      throw new TypeError("the network is down");
    },
    events: {
      frame: (frame) => said.push(frame.event),
      state: (live) => said.push(live ? "live" : "lost"),
      unauthorized: () => said.push("unauthorized"),
    },
  });
  return { asked, said };
}

test("a stream that ends is resumed after its last cursor", async () => {
  const first = `${ready("1")}id: 7\nevent: agent:error\ndata: {}\n\n${end("draining")}`;
  const { asked, said } = await follow([stream(first), stream(ready("7") + end("max_age"))]);
  expect(asked).toEqual(["deltas=true", "deltas=true&after=7", "deltas=true&after=7"]);
  expect(said).toEqual(["live", "stream:ready", "agent:error", "lost", "live", "stream:ready", "lost"]);
});

test.each([
  ["by its last frame", () => stream(ready("1") + end("unauthorized"))],
  ["by the status", () => new Response('{"error": "Log in", "code": "AUTH_INVALID"}', { status: 401 })],
])("the end of a session is reported %s, and nothing is asked again", async (_, response) => {
  const { asked, said } = await follow([response()]);
  expect(asked).toHaveLength(1);
  expect(said.at(-1)).toBe("unauthorized");
});

const STREAM =
  'event: stream:ready\ndata: {"resume":"fresh"}\n\n: comment\nid: 42\r\nevent: agent:error\r\ndata: a\r\ndata: b\r\n\r\n';
const FRAMES = [
  { id: undefined, event: "stream:ready", data: '{"resume":"fresh"}' },
  { id: "42", event: "agent:error", data: "a\nb" },
];

test("a stream has the same frames wherever its pieces end", () => {
  for (let size = 1; size <= STREAM.length; size += 1) {
    const parse = frameParser();
    const frames = [];
    for (let at = 0; at < STREAM.length; at += size) frames.push(...parse(STREAM.slice(at, at + size)));
    expect(frames).toEqual(FRAMES);
  }
});

test("a frame without its empty line is not complete", () => {
  expect(frameParser()("event: a\ndata: 1\n")).toEqual([]);
});
