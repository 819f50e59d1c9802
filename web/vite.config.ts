import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

const path = (relative: string) => new URL(relative, import.meta.url).pathname;

/** Has the page run `prefetch.ts` as soon as it is there, not after the styles and the scripts before it. */
const firstRequests: Plugin = {
  name: "first-requests",
  transformIndexHtml: {
    order: "post",
    handler: (html) => html.replace(/<script type="module"(?=[^>]*\/prefetch-)/, "$& async"),
  },
};

export default defineConfig({
  // Relative addresses: the page names its base path in <base>, which the service fills in.
  base: "./",
  plugins: [react(), tailwindcss(), firstRequests],
  resolve: {
    alias: {
      "@": path("./src"),
      // Before the last one, which would match their beginning.
      "outrider-client/events": path("../clients/typescript/src/events.ts"),
      "outrider-client/stream": path("../clients/typescript/src/stream.ts"),
      "outrider-client": path("../clients/typescript/src/client.ts"),
      // The diff view uses a few functions of lodash, which only this build of it has one by one.
      lodash: "lodash-es",
    },
  },
  worker: { format: "es" },
  build: {
    outDir: path("../src/outrider/service/static"),
    emptyOutDir: true,
    target: "es2022",
    // The Content-Security-Policy allows neither data: scripts nor inline ones.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
    rolldownOptions: {
      output: {
        // What a page always needs is one file: many small ones would wait for each other.
        codeSplitting: {
          groups: [
            { name: "prefetch", test: /src\/api\/prefetch\.ts$/, priority: 3 },
            { name: "main", test: /src\/app\/main\.tsx$/, priority: 2 },
            { name: "session", test: /features\/sessions\/session-page\.tsx$/, priority: 1 },
          ],
        },
      },
    },
  },
  test: {
    environmentOptions: { happyDOM: { url: "http://service.example/" } },
    // Modules that begin requests when they are loaded have no service in tests.
    setupFiles: ["src/kit/no-requests.ts"],
  },
  server: { proxy: { "/api": { target: "http://127.0.0.1:8400", ws: true } } },
});
