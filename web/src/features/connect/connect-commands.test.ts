import { expect, test } from "vitest";
import { connectCommands } from "./connect-commands";

test.each([
  ["", "outrider setup --server https://x --code AB-CD"],
  ["lab-1", "outrider setup --server https://x --code AB-CD --nickname lab-1"],
  ["-h", "outrider setup --server https://x --code AB-CD --nickname '-h'"],
  ["it's $(mine)", "outrider setup --server https://x --code AB-CD --nickname 'it'\\''s $(mine)'"],
])("the commands for a machine named %j", (nickname, setup) => {
  expect(connectCommands("https://x", "AB-CD", nickname)).toEqual([setup, "outrider daemon"]);
});
