import {
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
  Outlet,
  redirect,
} from "@tanstack/react-router";
import { ApiError, BASE_PATH } from "@/api/client";
import { queryClient } from "@/api/query-client";
import { Login } from "@/features/account/login-page";
import { safeNext } from "@/features/account/login-redirect";
import { accountQuery, userOf } from "@/features/account/queries";
import { loadCode, readSession } from "@/features/sessions/load";
import { sessionSearch } from "@/features/sessions/session-search";
import { SessionsPage } from "@/features/sessions/sessions-page";
import { keepDraftsOf } from "@/ui/drafts";
import { keepSpots } from "@/ui/return-place";
import { searchTexts } from "@/ui/search-texts";
import { FailedPage, NotFoundPage } from "./failed";
import { Shell } from "./shell";

const root = createRootRoute({ component: Outlet, notFoundComponent: NotFoundPage });

const login = createRoute({
  getParentRoute: () => root,
  path: "/login",
  component: Login,
  validateSearch: (search: Record<string, unknown>): { next?: string; over?: boolean } => ({
    ...(search.next !== undefined ? { next: safeNext(search.next) } : {}),
    ...(search.over ? { over: true } : {}),
  }),
});

const shell = createRoute({
  getParentRoute: () => root,
  id: "shell",
  component: Shell,
  errorComponent: FailedPage,
  async beforeLoad({ location: to }) {
    try {
      keepDraftsOf(userOf(await queryClient.ensureQueryData(accountQuery)));
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 401) throw error;
      const over = error.code === "AUTH_INVALID" ? { over: true } : {};
      throw redirect({ to: "/login", search: to.href === "/" ? over : { next: to.href, ...over } });
    }
  },
});

const sessions = createRoute({
  getParentRoute: () => shell,
  path: "/",
  component: SessionsPage,
  validateSearch: (search: Record<string, unknown>) => searchTexts(search, "q", "status", "machine"),
});
const inbox = createRoute({
  getParentRoute: () => shell,
  path: "/inbox",
  component: lazyRouteComponent(() => import("@/features/inbox/inbox-page"), "InboxPage"),
  validateSearch: (search: Record<string, unknown>) => searchTexts(search, "question"),
});
const machines = createRoute({
  getParentRoute: () => shell,
  path: "/machines",
  component: lazyRouteComponent(() => import("@/features/machines/machines-page"), "MachinesPage"),
  validateSearch: (search: Record<string, unknown>) => searchTexts(search, "q"),
});
const machine = createRoute({
  getParentRoute: () => shell,
  path: "/machines/$daemonId",
  component: lazyRouteComponent(() => import("@/features/machines/machine-page"), "MachinePage"),
});
const session = createRoute({
  getParentRoute: () => shell,
  path: "/sessions/$targetId",
  component: lazyRouteComponent(() => import("@/features/sessions/session-page"), "SessionPage"),
  loader: ({ params, preload }) => {
    loadCode();
    // A pointer over a row of the list must not ask the machine.
    if (!preload) readSession(params.targetId);
  },
  validateSearch: sessionSearch,
});
const account = createRoute({
  getParentRoute: () => shell,
  path: "/account",
  component: lazyRouteComponent(() => import("@/features/account/account-page"), "AccountPage"),
});

const history = createRoute({
  getParentRoute: () => shell,
  path: "/history",
  component: lazyRouteComponent(() => import("@/features/sessions/history-page"), "HistoryPage"),
  validateSearch: (search: Record<string, unknown>) => searchTexts(search, "q"),
});
const webhooks = createRoute({
  getParentRoute: () => shell,
  path: "/webhooks",
  component: lazyRouteComponent(() => import("@/features/webhooks/webhooks-page"), "WebhooksPage"),
});
const webhook = createRoute({
  getParentRoute: () => shell,
  path: "/webhooks/$webhookId",
  component: lazyRouteComponent(() => import("@/features/webhooks/webhook-page"), "WebhookPage"),
});
const device = createRoute({
  getParentRoute: () => shell,
  path: "/device",
  component: lazyRouteComponent(() => import("@/features/connect/device-page"), "DevicePage"),
  validateSearch: (search: Record<string, unknown>) => searchTexts(search, "code"),
});
/** What is none of these, inside the frame: its navigation leads on. */
const nowhere = createRoute({ getParentRoute: () => shell, path: "/$", component: NotFoundPage });

export const router = createRouter({
  routeTree: root.addChildren([
    login,
    shell.addChildren([
      sessions,
      inbox,
      machines,
      machine,
      session,
      history,
      webhooks,
      webhook,
      device,
      account,
      nowhere,
    ]),
  ]),
  basepath: BASE_PATH,
  defaultPreload: "intent",
  defaultNotFoundComponent: NotFoundPage,
  scrollRestoration: false, // a chat has its own place to be at
});
keepSpots(router);

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
