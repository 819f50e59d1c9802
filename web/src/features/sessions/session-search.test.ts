import { expect, test } from "vitest";
import { sessionSearch } from "./session-search";

test.each([
  [{}, {}],
  [{ tab: "chat", path: "a" }, {}],
  [{ tab: "nothing" }, {}],
  [
    { tab: "files", path: "src/a.py", base: "main" },
    { tab: "files", path: "src/a.py" },
  ],
  [
    { tab: "changes", base: "main", file: 7, path: "a" },
    { tab: "changes", base: "main", file: "7" },
  ],
  [{ tab: "debug", file: "a" }, { tab: "debug" }],
  [{ tab: "files", path: { a: 1 } }, { tab: "files" }],
])("of the address %j a session's page takes %j", (search, taken) => expect(sessionSearch(search)).toEqual(taken));
