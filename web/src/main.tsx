import "./styles.css";
import { QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { BASE_PATH } from "./api/client";
import { sessionAt } from "./api/places";
import { queryClient } from "./api/queries";
import { router } from "./router";
import { loadCode, readSession } from "./session/load";

// The router asks for the account first, and only then for what the page needs.
const first = sessionAt(location.pathname, BASE_PATH);
if (first !== undefined) {
  loadCode();
  readSession(first);
}

createRoot(document.getElementById("root") as HTMLElement).render(
  <StrictMode>
    <QueryClientProvider client={queryClient}>
      <RouterProvider router={router} />
    </QueryClientProvider>
  </StrictMode>,
);
