/** The kit: a page with every component in every state, for people (`npm run kit`) and for pictures of it. */
import "@/styles.css";
import { QueryClientProvider } from "@tanstack/react-query";
import { createMemoryHistory, createRootRoute, createRouter, RouterProvider } from "@tanstack/react-router";
import { createRoot } from "react-dom/client";
import { queryClient } from "@/api/query-client";
import { keys } from "@/api/query-keys";
import { STORIES } from "./stories";

// There is no service: what the message boxes show has been read already.
for (const name of ["idle", "busy"]) {
  const targetId = `machine_1:session:${name}`;
  const queued = [{ messageId: "msg_1", text: "Then write the changelog", createdAt: 0 }];
  queryClient.setQueryData(keys.queue(targetId), name === "busy" ? queued : []);
  queryClient.setQueryData(keys.chat(targetId), { messages: [], totalMessages: 0 });
}

function Kit() {
  return (
    <main className="p-4 sm:p-6">
      <h1 className="text-lg">Kit</h1>
      {Object.entries(STORIES).map(([component, states]) => (
        <section key={component} aria-label={component} className="mt-8 border-t border-line pt-3">
          <h2 className="text-base">{component}</h2>
          <div className="mt-3 flex flex-wrap gap-x-6 gap-y-4">
            {Object.entries(states).map(([state, element]) => (
              <figure
                key={state}
                className="max-w-full min-w-32 has-[form,pre,section,header,ul,ol,p,textarea,table]:w-full"
              >
                <figcaption className="mb-1 text-xs text-faint">{state}</figcaption>
                {element}
              </figure>
            ))}
          </div>
        </section>
      ))}
    </main>
  );
}

// Rows are links, which need a router; none of its pages is there.
const router = createRouter({
  routeTree: createRootRoute({ component: Kit }),
  history: createMemoryHistory(),
});

createRoot(document.getElementById("root") as HTMLElement).render(
  <QueryClientProvider client={queryClient}>
    <RouterProvider router={router as never} />
  </QueryClientProvider>,
);
