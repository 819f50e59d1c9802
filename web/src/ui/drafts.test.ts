import { beforeEach, expect, test, vi } from "vitest";
import { clearDrafts, keepDraft, keepDraftsOf, keepForm, readDraft, readForm } from "./drafts";

vi.mock("@/api/prefetch", () => ({ BASE_PATH: "/a/" }));

const EMPTY = { url: "", all: true };

beforeEach(() => {
  const storage: Record<string, string> = { other: "stays", "outrider:draft:/b/:connect": "of another service" };
  const methods = {
    getItem: (key: string) => storage[key] ?? null,
    setItem: (key: string, value: string) => void (storage[key] = value),
    removeItem: (key: string) => void delete storage[key],
  };
  vi.stubGlobal("sessionStorage", new Proxy(storage, { get: (_, name) => methods[name as keyof typeof methods] }));
});

test("what was typed is read again, until it is sent", () => {
  keepDraft("m:session:s", "hello");
  expect(readDraft("m:session:s")).toBe("hello");
  keepDraft("m:session:s", "");
  expect(readDraft("m:session:s")).toBe("");
});

test("a dialog begins with what was typed into it, and with nothing after nonsense", () => {
  expect(readForm("webhook", EMPTY)).toBe(EMPTY);
  keepForm("webhook", { url: "https://example.org" });
  expect(readForm("webhook", EMPTY)).toEqual({ url: "https://example.org", all: true });
  keepDraft("webhook", "{");
  expect(readForm("webhook", EMPTY)).toBe(EMPTY);
});

test("a log-out forgets drafts and nothing else", () => {
  keepDraft("m:session:s", "hello");
  keepForm("connect", { nickname: "desk" });
  clearDrafts();
  expect(readDraft("m:session:s") + readDraft("connect")).toBe("");
  expect(sessionStorage.getItem("other")).toBe("stays");
  expect(sessionStorage.getItem("outrider:draft:/b/:connect")).toBe("of another service");
});

test("what was typed is for its user only", () => {
  keepDraftsOf("user_a");
  keepDraft("webhook", "https://example.org/token");
  keepDraftsOf("user_a");
  expect(readDraft("webhook")).toBe("https://example.org/token");
  keepDraftsOf("user_b");
  expect(readDraft("webhook")).toBe("");
  expect(sessionStorage.getItem("other")).toBe("stays");
});

test("without storage nothing is kept, and nothing fails", () => {
  vi.stubGlobal("sessionStorage", undefined);
  keepDraft("a", "b");
  clearDrafts();
  expect(readDraft("a")).toBe("");
});
