import { expect, test, vi } from "vitest";

test("the first page takes each response that was requested before its code was there", async () => {
  const requested: string[] = [];
  vi.stubGlobal("document", { baseURI: "http://service/outrider/" });
  vi.stubGlobal("location", { pathname: "/outrider/sessions/m%3Asession%3As" });
  vi.stubGlobal("fetch", async (url: string) => {
    requested.push(url);
    return Response.json({ messages: [], daemons: [], sessions: [], approvals: [] });
  });
  await import("./prefetch");
  const first = [...requested];
  expect(first).toHaveLength(6);
  expect(new Set(first)).toContain("http://service/outrider/api/v1/shortcuts/m%3Asession%3As/chat?limit=200");

  const { queryClient } = await import("./query-client");
  const { statusQuery } = await import("@/features/sessions/queries");
  const { readShell } = await import("@/app/first-page");
  const { readSession } = await import("@/features/sessions/load");
  readSession("m:session:s");
  readShell();
  await vi.waitFor(() => expect(queryClient.isFetching()).toBe(0));
  expect(requested).toEqual(first);

  await queryClient.fetchQuery({ ...statusQuery("m:session:s"), staleTime: 0 });
  expect(requested).toHaveLength(first.length + 1);
});
