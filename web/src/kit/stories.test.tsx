// @vitest-environment happy-dom
import { createMemoryHistory, createRootRoute, createRouter, RouterProvider } from "@tanstack/react-router";
import { screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { service, show } from "./render";
import { STORIES } from "./stories";

test.each(Object.entries(STORIES))("each state of the component %s can be drawn", async (_, states) => {
  service({});
  const component = () => Object.entries(states).map(([state, element]) => <figure key={state}>{element}</figure>);
  const router = createRouter({ routeTree: createRootRoute({ component }), history: createMemoryHistory() });
  await router.load();
  show(<RouterProvider router={router as never} />);
  const figures = await screen.findAllByRole("figure");
  expect(figures).toHaveLength(Object.keys(states).length);
  for (const figure of figures) expect(figure.children.length + (figure.textContent ?? "").length).toBeGreaterThan(0);
});
