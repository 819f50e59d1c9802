import "@/styles.css";
import { QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { queryClient } from "@/api/query-client";
import { requestFirstPage } from "./first-page";
import { router } from "./router";

requestFirstPage();

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
