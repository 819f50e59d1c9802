// @vitest-environment happy-dom
import {
  createMemoryHistory,
  createRootRoute,
  createRoute,
  createRouter,
  RouterProvider,
} from "@tanstack/react-router";
import { act, fireEvent, screen } from "@testing-library/react";
import { expect, test, vi } from "vitest";
import { show } from "@/kit/render";
import { SearchBox } from "./field";
import { useFilterText } from "./use-filter-text";

const TYPED_MS = 300;

/** A list with a filter, and a page that is there only when `arrive` is called. */
async function listAndSlowPage() {
  let arrive: () => void = () => undefined;
  const root = createRootRoute();
  const list = createRoute({
    getParentRoute: () => root,
    path: "/",
    validateSearch: ({ q }: Record<string, unknown>) => (typeof q === "string" && q ? { q } : {}),
    component: function List() {
      const { q } = list.useSearch();
      const navigate = list.useNavigate();
      const [text, setText] = useFilterText(q, (next) =>
        navigate({ search: next ? { q: next } : {}, replace: true } as never),
      );
      return <SearchBox label="Filter" value={text} onChange={setText} />;
    },
  });
  const slow = createRoute({
    getParentRoute: () => root,
    path: "/slow",
    loader: () => new Promise<void>((resolve) => (arrive = resolve)),
    component: () => <h1>Slow</h1>,
  });
  const history = createMemoryHistory({ initialEntries: ["/?q=first"] });
  const router = createRouter({ routeTree: root.addChildren([list, slow]), history });
  await router.load();
  show(<RouterProvider router={router as never} />);
  await screen.findByRole("searchbox");
  return { router, arrive: () => arrive() };
}

const box = () => screen.getByRole<HTMLInputElement>("searchbox", { name: "Filter" });
const type = (value: string) => fireEvent.change(box(), { target: { value } });
const pause = () => act(() => new Promise((resolve) => setTimeout(resolve, TYPED_MS)));

test("the filter is in the address once the typing pauses, and follows it", async () => {
  const { router } = await listAndSlowPage();
  expect(box().value).toBe("first");
  type("sec");
  type("second");
  expect(router.state.location.href).toBe("/?q=first");
  await vi.waitFor(() => expect(router.state.location.href).toBe("/?q=second"));
  await act(() => router.navigate({ to: "/", search: { q: "third" } } as never));
  await vi.waitFor(() => expect(box().value).toBe("third"));
});

test("a filter that was just typed does not bring back who goes to another page", async () => {
  const { router, arrive } = await listAndSlowPage();
  type("second");
  act(() => void router.navigate({ to: "/slow" } as never));
  await pause();
  arrive();
  expect(await screen.findByRole("heading", { name: "Slow" })).toBeDefined();
  expect(router.state.location.href).toBe("/slow");
});
