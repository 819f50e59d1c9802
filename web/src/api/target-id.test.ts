import { expect, test } from "vitest";
import { machineOf, sessionAt } from "./target-id";

test("a target id begins with its machine", () => {
  expect(machineOf("machine_1:session:s:x")).toBe("machine_1");
  expect(machineOf("nonsense")).toBe("");
});

test.each([
  ["/sessions/m%3Asession%3As", "/", "m:session:s"],
  ["/outrider/sessions/m:session:s/", "/outrider/", "m:session:s"],
  ["/sessions/", "/", undefined],
  ["/sessions/a/b", "/", undefined],
  ["/sessions/%", "/", undefined],
  ["/", "/", undefined],
])("the page at %s below %s is that of %s", (path, base, session) => expect(sessionAt(path, base)).toBe(session));
