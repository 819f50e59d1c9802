import { vi } from "vitest";

vi.stubGlobal("fetch", () => new Promise(() => undefined));
