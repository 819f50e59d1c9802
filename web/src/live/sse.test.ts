import { expect, test } from "vitest";
import { frameParser } from "./sse";

const STREAM = 'event: stream:ready\ndata: {"resume":"fresh"}\n\n: comment\nid: 42\r\nevent: agent:error\r\ndata: a\r\ndata: b\r\n\r\n';
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
