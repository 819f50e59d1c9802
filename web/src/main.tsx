import "./styles.css";
import { QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { BASE_PATH } from "./api/client";
import { sessionAt } from "./api/places";
import { queryClient, readShell } from "./api/queries";
import { router } from "./router";
import { loadCode, readSession } from "./session/load";

// Request the data and code of the first page now: the router and the page would do it one after the other.
const first = sessionAt(location.pathname, BASE_PATH);
if (first !== undefined) {
  // As the router writes it: otherwise it would load the page a second time, to correct the address.
  const path = `${BASE_PATH}sessions/${encodeURIComponent(first)}`;
  history.replaceState(history.state, "", path + location.search + location.hash);
  loadCode();
  readSession(first);
}
if (location.pathname !== `${BASE_PATH}login`) readShell();

// Drawn once the first page is loaded: React holds back for 300 ms what replaces a first, empty page.
void router.load().finally(() =>
  createRoot(document.getElementById("root") as HTMLElement).render(
    <StrictMode>
      <QueryClientProvider client={queryClient}>
        <RouterProvider router={router} />
      </QueryClientProvider>
    </StrictMode>,
  ),
);
